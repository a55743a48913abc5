// Compiles only if the name in TURNOUT_TEST_... is one of the signature's, no argument has the name in
// TURNOUT_TEST_SIZE, TURNOUT_TEST_WRITTEN_IF is a flag that is off by default, TURNOUT_TEST_FLAG for sizes
// has a computed size, TURNOUT_TEST_WHEN is a value of a scalar, and the wrappers in TURNOUT_TEST_INPUT and
// TURNOUT_TEST_OUTPUT fit such arguments. See CMakeLists.txt.
#include "core/check.h"
#include "core/draft.h"

namespace turnout::core {
namespace {

#ifndef TURNOUT_TEST_SIZE
#define TURNOUT_TEST_SIZE "columns"
#endif
#ifndef TURNOUT_TEST_FLAG
#define TURNOUT_TEST_FLAG flag("wide")
#endif
#ifndef TURNOUT_TEST_LOOKS_AT
#define TURNOUT_TEST_LOOKS_AT "x"
#endif
#ifndef TURNOUT_TEST_WRITTEN_IF
#define TURNOUT_TEST_WRITTEN_IF "in_place"
#endif
#ifndef TURNOUT_TEST_WHEN
#define TURNOUT_TEST_WHEN "mode=zero"
#endif
#ifndef TURNOUT_TEST_INPUT
#define TURNOUT_TEST_INPUT in("x", kFloats, "rows")
#endif
#ifndef TURNOUT_TEST_OUTPUT
#define TURNOUT_TEST_OUTPUT out("y", like("x"), "rows * factor")
#endif

void data_check(const Arguments& arguments, const Positions& at) {
  if (!arguments.slot(at[0]).present) arguments.fail(ErrorCode::bad_param, "fails");
}

constexpr const Signature& kScale = signature([] {
  return Draft{"scale",
               "rows " TURNOUT_TEST_SIZE,
               {scalar("factor", 1), TURNOUT_TEST_FLAG},
               {TURNOUT_TEST_INPUT, TURNOUT_TEST_OUTPUT},
               {},
               {{"a check", "what it expects", &data_check, TURNOUT_TEST_LOOKS_AT}}};
});

constexpr StepSpec kSteps[] = {{Check::present, ErrorCode::bad_param, "x", TURNOUT_TEST_WHEN}};
[[maybe_unused]] constexpr const Signature& kConditional = signature([] {
  return Draft{"conditional", "rows", {choice("mode", "keep zero")}, {in("x", kFloats, "rows")}, {}, {},
               kSteps};
});

[[maybe_unused]] constexpr const Signature& kUpdate = signature([] {
  return Draft{"update",
               "rows",
               {scalar("factor", 1), by_default("no", flag("in_place")), by_default("yes", flag("fast"))},
               {written_if(TURNOUT_TEST_WRITTEN_IF, inout("x", kFloats, "rows"))}};
});

}  // namespace

// `later` is not a constant, which must not compile either.
#if defined(TURNOUT_TEST_DIRECT)
std::int64_t direct(const Arguments& arguments, [[maybe_unused]] std::string_view later) {
  return arguments.size(kScale.size(TURNOUT_TEST_DIRECT));
}
#endif

}  // namespace turnout::core
