/* The header under the name that code written for MLU-OPS includes. Alone in its folder, so that no other
 * name of ours is in a client's include path. */
#include "../mlu_op.h"
