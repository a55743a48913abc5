// A valid call, generated from a Signature, which tests then break.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/example.h"
#include "turnout/tensor.h"

namespace turnout::test {

using core::Argument;
using core::Extent;
using core::position_of;
using core::Signature;

struct ExampleCall : core::Example {
  std::vector<std::unique_ptr<std::vector<std::uint64_t>>> memory;  // by argument
  std::vector<Tensor> tensors;

  ExampleCall(const Signature& s, std::string_view example, bool drop_optional = false)
      : Example(s, example, drop_optional) {
    for (int i = 0; i < s.arguments.count; ++i) {
      const std::vector<std::int64_t> extents = shape(i);
      tensors.emplace_back(nullptr, dtype(i), extents.data(), static_cast<int>(extents.size()));
      memory.emplace_back();
      allocate(i);
    }
  }

  // Allocates zeroed memory for the current shape and dtype of argument i, with spare room.
  void allocate(int i) {
    Tensor& t = tensors[static_cast<std::size_t>(i)];
    const std::int64_t elements = core::Slot(t).elements();
    auto& block = memory[static_cast<std::size_t>(i)];
    block = std::make_unique<std::vector<std::uint64_t>>(static_cast<std::size_t>(elements) + 64, 0u);
    t.data = block->data();
  }

  void fill(int i, std::uint64_t word) {
    auto& block = *memory[static_cast<std::size_t>(i)];
    std::fill(block.begin(), block.end(), word);
  }

  // The bytes of all outputs, to check that a failing call has written nothing.
  std::string output_bytes() const {
    std::string bytes;
    for (int i = 0; i < signature.arguments.count; ++i) {
      if (!signature.arguments[i].is_output()) continue;
      const auto& block = *memory[static_cast<std::size_t>(i)];
      bytes.append(reinterpret_cast<const char*>(block.data()), block.size() * sizeof(block[0]));
    }
    return bytes;
  }
  void paint_outputs() {
    for (int i = 0; i < signature.arguments.count; ++i) {
      auto& block = *memory[static_cast<std::size_t>(i)];
      if (signature.arguments[i].is_output())
        std::memset(block.data(), 0x5A, block.size() * sizeof(block[0]));
    }
  }
};

}  // namespace turnout::test
