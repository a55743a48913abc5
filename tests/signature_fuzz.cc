// Fuzzes every operator's arguments: random dtypes, ranks, shapes, strides, null pointers, scalars. A call
// either succeeds or throws Error and writes nothing; the sanitizers watch the memory.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "example_call.h"
#include "fuzz.h"
#include "registry.h"
#include "turnout/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  test::FuzzInput in(data, size);
  const auto operators = core::operators();
  const core::Operator& op =
      operators[static_cast<std::size_t>(in.between(0, static_cast<std::int64_t>(operators.size()) - 1))];
  const core::Signature& signature = *op.signature;

  // Half of the calls start from the operator's example, which is valid.
  std::string example;
  if (in.flag()) {
    example = op.example;
  } else {
    for (std::string_view name : signature.names)
      example += std::string(name) + "=" + std::to_string(in.between(0, 4)) + " ";
  }
  test::ExampleCall call(signature, example, in.flag());

  std::vector<std::size_t> alias(call.tensors.size());
  for (std::size_t i = 0; i < alias.size(); ++i) alias[i] = i;
  // A few random changes, some without effect.
  const std::int64_t changes = in.between(0, 3);
  for (std::int64_t change = changes; change > 0; --change) {
    const auto i = static_cast<std::size_t>(in.between(0, signature.arguments.count - 1));
    Tensor& t = call.tensors[i];
    const auto d = static_cast<std::size_t>(in.between(0, kMaxRank - 1));
    switch (in.between(0, 6)) {
      case 0:
        t.dtype = static_cast<DType>(in.between(0, kDTypeCount));
        break;
      case 1:
        t.rank = static_cast<std::int32_t>(in.between(0, kMaxRank + 1));
        break;
      case 2:
        t.shape[d] = in.one_in(4) ? in.value<std::int64_t>() : in.between(-1, 5);
        break;
      case 3:
        // Arguments that accept any strides keep theirs, because the memory must cover them.
        if (signature.needs_contiguous(static_cast<int>(i))) t.stride[d] = in.value<std::int64_t>();
        break;
      case 4:
        t.data = nullptr;
        break;
      case 5:
        alias[i] = static_cast<std::size_t>(in.between(0, signature.arguments.count - 1));
        break;
      default:
        call.sizes[static_cast<std::size_t>(in.between(0, signature.names.count - 1))] =
            in.value<std::int64_t>();
    }
  }
  // Allocates memory for small tensors. Larger ones must be rejected before any access.
  constexpr std::int64_t kSmall = 64;  // elements; also fits the memory of every other argument
  for (std::size_t i = 0; i < alias.size(); ++i) {
    Tensor& t = call.tensors[i];
    const bool is_small =
        t.rank >= 0 && t.rank <= kMaxRank && core::Slot(t).elements() <= kSmall * (alias[i] == i ? 999 : 1);
    if (!is_small) t.data = nullptr;
    if (t.data != nullptr) call.allocate(static_cast<int>(i));
  }
  for (std::size_t i = 0; i < alias.size(); ++i)
    if (call.tensors[i].data != nullptr && alias[i] != i)
      call.tensors[i].data = call.memory[alias[i]]->data();
  if (op.prepare != nullptr && in.flag()) {
    bool intact = true;
    for (std::size_t i = 0; i < alias.size(); ++i) intact &= call.tensors[i].data != nullptr && alias[i] == i;
    if (intact && changes == 0) op.prepare(call.tensors.data());
  }
  call.paint_outputs();
  const std::string before = call.output_bytes();
  const auto scalars = call.scalar_values();
  static Context context({.threads = 2});
  try {
    op.invoke(context, call.tensors.data(), scalars.data());
  } catch (const Error&) {
    if (before != call.output_bytes()) std::abort();
  }
  return 0;
}
