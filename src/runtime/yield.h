// Waiting for another thread of the same call.
#pragma once

#include <thread>

namespace turnout::core {

// Lets another thread run on this core: the thread that is waited for may have no core.
inline void yield_core() { std::this_thread::yield(); }

}  // namespace turnout::core
