// The C header must compile as C++ with nothing included before it.
#include "turnout/mluop/mlu_op.h"

static_assert(MLUOP_VERSION == 2101);
