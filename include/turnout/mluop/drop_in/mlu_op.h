/* The header under the name that code written for MLU-OPS includes. It is alone in its folder, so that a
 * client's include path contains no other header of Turnout. */
#include "../mlu_op.h"
