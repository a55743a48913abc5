#include "../../acl_meta.h"
