// Symbol visibility. The shared library exports what is marked TURNOUT_API, except members that are marked
// TURNOUT_HIDDEN. The static library exports nothing, so that a library that links it does not re-export it.
#pragma once

#ifdef TURNOUT_STATIC
#define TURNOUT_API
#else
#define TURNOUT_API __attribute__((visibility("default")))
#endif
#define TURNOUT_HIDDEN __attribute__((visibility("hidden")))
