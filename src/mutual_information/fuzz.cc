// Differential fuzzer: any lattice, any boundary, any values. Compares every instruction set with the
// definition in double, and the bits of two threads with those of one.
#include <cstring>

#include "fuzz.h"
#include "isas.h"
#include "mutual_information/lattice_case.h"

namespace turnout::test {
namespace {

template <class T>
void run(FuzzInput& in) {
  LatticeCase<T> c(in.between(1, 3), in.between(0, 20), in.between(0, 40), in.flag());
  const bool wild = in.one_in(4);
  for (std::vector<T>* values : {&c.px, &c.py}) {
    for (T& v : *values) {
      const double none = -std::numeric_limits<double>::infinity();
      v = c.cast(in.one_in(16)          ? none
                 : wild && in.one_in(8) ? static_cast<double>(in.between(0, 2000) - 1000)
                                        : static_cast<double>(-in.between(0, 999)) / 250);
    }
  }
  if (in.flag()) {
    for (std::int64_t b = 0; b < c.batch; ++b)
      c.boundary.insert(c.boundary.end(), {in.between(0, c.symbols), in.between(0, c.frames),
                                           in.between(0, c.symbols), in.between(0, c.frames)});
  }
  const auto expected = c.expected();
  for (Isa isa : supported_isas()) {
    Context one({.threads = 1, .isa = isa}), two({.threads = 2, .isa = isa});
    auto r = c.empty_result(), again = c.empty_result();
    c.forward(one, r);
    c.forward(two, again);
    require(difference(r.p, expected.p) < 1e-5);
    c.backward(one, r, true);
    c.backward(two, again, true);
    require(r == again);
    auto both = c.empty_result(), both_again = c.empty_result();
    c.both(one, both);
    c.both(two, both_again);
    require(both == both_again);
    const auto of_same_p = c.expected(&r.p);
    // Do not compare values that are too small in float relative to their sum.
    if (wild || sizeof(T) == 2) continue;
    require(difference(r.px_grad, of_same_p.px_grad) < 1e-5 &&
            difference(r.py_grad, of_same_p.py_grad) < 1e-5);
    require(difference(both.px_grad, expected.both_px_grad) < 1e-4 &&
            difference(both.py_grad, expected.both_py_grad) < 1e-4);
  }
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  turnout::test::FuzzInput in(data, size);
  switch (in.between(0, 5)) {
    case 0:
      turnout::test::run<double>(in);
      break;
    case 1:
      turnout::test::run<turnout::f16>(in);
      break;
    case 2:
      turnout::test::run<turnout::bf16>(in);
      break;
    default:
      turnout::test::run<float>(in);
  }
  return 0;
}
