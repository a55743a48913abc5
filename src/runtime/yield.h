// yield_core(), for waiting on another thread of the same call.
#pragma once

#include <thread>

namespace turnout::core {

// Lets another thread run on this core: the awaited thread may not have a core.
inline void yield_core() { std::this_thread::yield(); }

}  // namespace turnout::core
