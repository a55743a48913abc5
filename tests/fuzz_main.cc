// A plain main for a fuzzer: one second of random inputs from a fixed seed, as part of every test run. It
// fails if an operator of the fuzzer's list, TURNOUT_FUZZED_OPERATORS, has computed nothing after that second
// and kMostInputs inputs. The list of the definition fuzzer has only operators with a definition.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "registry.h"
#include "turnout/context.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace TURNOUT_FUZZED_OPERATORS {
std::span<const turnout::core::Operator> operators();
}

namespace {

// Extracts the names of operators from log lines of calls that computed something.
void note_call(int /*level*/, const char* line, void* user) {
  constexpr std::string_view kStart = "[turnout] ", kFailed = "failed: ";
  std::string_view text(line);
  if (!text.starts_with(kStart)) return;
  text.remove_prefix(kStart.size());
  const auto end = text.find('(');
  if (text.starts_with(kFailed) || end == text.npos) return;
  static_cast<std::set<std::string, std::less<>>*>(user)->emplace(text.substr(0, end));
}

}  // namespace

int main() {
  constexpr unsigned kSeed = 20240607;
  constexpr long kMostInputs = 20'000;
  std::set<std::string, std::less<>> seen;
  turnout::set_log(1, note_call, &seen);
  const auto is_seen = [&](const turnout::core::Operator& op) {
    return seen.contains(op.signature->op) || (op.definition != nullptr && !TURNOUT_FUZZES_DEFINITIONS);
  };
  const auto operators = TURNOUT_FUZZED_OPERATORS::operators();
  std::mt19937 random(kSeed);
  const auto start = std::chrono::steady_clock::now();
  const auto is_first_second = [&] {
    return std::chrono::steady_clock::now() - start < std::chrono::seconds(1);
  };
  std::vector<std::uint8_t> bytes;
  long runs = 0;
  for (; is_first_second() || (runs < kMostInputs && !std::ranges::all_of(operators, is_seen)); ++runs) {
    bytes.resize(random() % 4096);
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%ld inputs, seed %u\n", runs, kSeed);
  int missed = 0;
  for (const turnout::core::Operator& op : operators)
    if (!is_seen(op)) {
      std::printf("%s: no input reached it\n", std::string(op.signature->op).c_str());
      ++missed;
    }
  return missed > 0 ? 1 : 0;
}
