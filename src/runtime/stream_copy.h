// One long copy on all threads of a context.
#pragma once

#include <cstdint>

#include "turnout/context.h"

namespace turnout::core {

// to[0 .. bytes-1] = from[0 .. bytes-1] with non-temporal stores. No overlap.
void stream_copy(Context& context, void* to, const void* from, std::int64_t bytes);

}  // namespace turnout::core
