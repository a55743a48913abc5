// Regroups tokens that an all-to-all delivered: they arrive grouped by the process that sent them, and
// experts need them grouped by expert. The inverse restores the order of arrival.
#include <turnout/turnout.h>

#include <cstdio>
#include <vector>

int main() {
  const std::size_t ranks = 2, experts = 3, rows = 6, hidden = 1;
  const std::vector<std::int32_t> counts = {1, 0, 2,   // from process 0: tokens for experts 0, 1, 2
                                            1, 1, 1};  // from process 1
  const std::vector<float> arrived = {0, 2, 2.5f, 0.25f, 1, 2.75f};  // the integer part is the expert
  std::vector<float> grouped(rows), back(rows);
  std::vector<std::int32_t> origin(rows), per_expert(experts);
  try {
    turnout::moe_re_routing(turnout::view(arrived, {rows, hidden}), turnout::view(counts, {ranks, experts}),
                            nullptr, turnout::view(grouped, {rows, hidden}), nullptr, turnout::view(origin),
                            turnout::view(per_expert));
    std::size_t row = 0;
    bool right = true;
    for (std::size_t e = 0; e < experts; ++e) {
      std::printf("expert %zu:", e);
      for (std::int32_t k = 0; k < per_expert[e]; ++k, ++row) {
        std::printf(" %g", grouped[row]);
        right &= static_cast<std::size_t>(grouped[row]) == e;
      }
      std::printf("\n");
    }
    turnout::moe_re_routing_inverse(turnout::view(grouped, {rows, hidden}), turnout::view(origin),
                                    turnout::view(back, {rows, hidden}));
    return right && row == rows && back == arrived ? 0 : 1;
  } catch (const turnout::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

// Output:
//   expert 0: 0 0.25
//   expert 1: 1
//   expert 2: 2 2.5 2.75
