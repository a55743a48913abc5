/* The header under the name that code written for MLU-OPS includes. It is alone in its folder, so that a
 * client's include path contains no other header of Turnout. */
#include "../mlu_op.h"

/* As in MLU-OPS, for programs that use the target turnout::cnrt or the pkg-config file turnout-cnrt. */
#ifdef TURNOUT_CNRT
#include <cnrt.h>
#endif
