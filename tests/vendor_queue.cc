// vendor_queue.c, compiled as C++.
#include "vendor_queue.c"
