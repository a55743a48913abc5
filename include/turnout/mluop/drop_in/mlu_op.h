/* The header under the name that code written for MLU-OPS includes. It is alone in its folder, so that a
 * client's include path contains no other header of Turnout. */
#include "../mlu_op.h"

/* MLU-OPS includes cnrt.h too. This is for programs that use the target turnout::mluop_runtime or the
 * pkg-config file turnout-mluop-runtime. */
#ifdef TURNOUT_VENDOR_RUNTIME
#include <cnrt.h>
#endif
