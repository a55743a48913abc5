// The same file in C++.
#include "vendor_queue.c"
