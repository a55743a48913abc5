// Compiles when the name in TURNOUT_TEST_... is one of the signature's, and not else: see CMakeLists.txt.
#include "core/check.h"

namespace turnout::core {
namespace {

template <const Signature& kSignature>
void data_check(const Arguments& arguments);

constexpr Signature kScale{"scale",
                           "rows",
                           {scalar("factor", 1)},
                           {in("x", kFloats, "rows"), out("y", like("x"), "rows * factor")},
                           {},
                           {{"a check", &data_check<kScale>}}};

template <const Signature& kSignature>
void data_check(const Arguments& arguments) {
#if defined(TURNOUT_TEST_SIZE)
  if (arguments.size(kSize<kSignature, TURNOUT_TEST_SIZE>) == 0) return;
#elif defined(TURNOUT_TEST_ARGUMENT)
  if (arguments.slot(kArgument<kSignature, TURNOUT_TEST_ARGUMENT>).present) return;
#endif
  arguments.fail(ErrorCode::bad_param, "fails");
}

}  // namespace

// Outside a template, where the name may be no constant at all.
#if defined(TURNOUT_TEST_DIRECT)
std::int64_t direct(const Arguments& arguments, [[maybe_unused]] std::string_view later) {
  return arguments.size(kScale.size(TURNOUT_TEST_DIRECT));
}
#endif

}  // namespace turnout::core
