// Lets the results of tests and fuzzers be streamed from 2 MB on, whatever the caches of the machine are.
#include "simd/copy.h"

namespace turnout::test {
namespace {

[[maybe_unused]] const bool kIsSet = (core::set_stream_limit(2 << 20), true);

}  // namespace
}  // namespace turnout::test
