// What the shared library exports: TURNOUT_API, and of classes marked so what is not TURNOUT_HIDDEN.
// Everything else is hidden. The static library marks nothing, so that whoever links it does not export it in
// turn.
#pragma once

#ifdef TURNOUT_STATIC
#define TURNOUT_API
#else
#define TURNOUT_API __attribute__((visibility("default")))
#endif
#define TURNOUT_HIDDEN __attribute__((visibility("hidden")))
