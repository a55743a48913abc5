// Compares the headers of the C interface with the recorded interface of MLU-OPS, mluop_interface.inc: types
// and values at compile time, the lists of names at run time.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <type_traits>

#include "turnout/mluop/mlu_op.h"

#define MACRO(name, value) static_assert(name == value);
#define OPAQUE(name, tag) static_assert(std::is_same_v<name, struct tag*>);
#define ENUMERATOR(type, name, value) static_assert(std::is_same_v<decltype(name), type> && name == value);
#define FUNCTION(name, result, ...) static_assert(std::is_same_v<decltype(&name), result (*)(__VA_ARGS__)>);
#define OURS(name)
#include "mluop_interface.inc"
#undef MACRO
#undef OPAQUE
#undef ENUMERATOR
#undef FUNCTION
#undef OURS

namespace turnout::test {
namespace {

std::set<std::string> recorded_names() {
  return {
#define MACRO(name, value)
#define OPAQUE(name, tag) #name,
#define ENUMERATOR(type, name, value) #name,
#define FUNCTION(name, result, ...) #name,
#define OURS(name) #name,
#include "mluop_interface.inc"
  };
}

// The functions, enumerators and pointer types that the headers declare.
std::set<std::string> declared_names() {
  const std::regex declarations[] = {std::regex(R"(MLUOP_WIN_API\s+(\w+)\()"),
                                     std::regex(R"((MLUOP_\w+) = -?\d)"),
                                     std::regex(R"(typedef struct mluOp\w+\* (\w+);)")};
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(TURNOUT_MLUOP_HEADERS)) {
    if (file.path().extension() != ".h") continue;
    std::ifstream stream(file.path());
    std::string text{std::istreambuf_iterator<char>(stream), {}};
    text = std::regex_replace(text, std::regex(R"(/\*([^*]|\*[^/])*\*/)"), "");
    for (const std::regex& declaration : declarations)
      for (std::sregex_iterator match(text.begin(), text.end(), declaration), end; match != end; ++match)
        names.insert((*match)[1]);
  }
  return names;
}

TEST(CInterface, DeclaresWhatIsRecorded) { EXPECT_EQ(declared_names(), recorded_names()); }

}  // namespace
}  // namespace turnout::test
