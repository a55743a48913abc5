// Tests the order of checks with a list written by hand: a call starts with every fault, and the faults are
// repaired one by one.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c_descriptors.h"

namespace turnout::test {

// Each stair is an expected error and the repair that removes it. Call must have run(handle).
template <class Call>
class Stairs {
 public:
  using Repair = std::function<void(Call&)>;
  explicit Stairs(std::string function) : function_(std::move(function)) {}

  // message: the beginning of the message, without the function's name.
  void bad(const std::string& message, Repair repair) { stairs_.push_back({kBad, message, repair}); }
  void unsupported(const std::string& message, Repair repair) {
    stairs_.push_back({kUnsupported, message, repair});
  }
  void succeeds(Repair repair = [](Call&) {}) { stairs_.push_back({kOk, "", repair}); }

  void climb() const {
    mluOpHandle_t handle = nullptr;
    ASSERT_EQ(mluOpCreate(&handle), kOk);
    Call call;
    for (const Stair& stair : stairs_) {
      ASSERT_EQ(call.run(handle), stair.status) << stair.message << " / " << turnoutLastError();
      const std::string said = turnoutLastError();
      const std::string expected = stair.status == kOk ? "" : function_ + ": " + stair.message;
      EXPECT_EQ(expected.empty() ? said : said.substr(0, expected.size()), expected) << said;
      stair.repair(call);
    }
    EXPECT_EQ(mluOpDestroy(handle), kOk);
  }

 private:
  struct Stair {
    mluOpStatus_t status;
    std::string message;
    Repair repair;
  };
  std::string function_;
  std::vector<Stair> stairs_;
};

using Shape = std::vector<std::int64_t>;

inline constexpr std::int64_t kNegative = -(std::int64_t{1} << 40);

// The faults of one tensor. Initially it has all of them.
struct Part {
  bool described = false, right_rank = false, right_dtype = false, strided = true, has_data = false;
  Shape wrong_extent;  // added to the correct shape
  mluOpTensorLayout_t layout = MLUOP_LAYOUT_NTC;
};

// The descriptors and pointers that one call passes.
struct Given {
  std::vector<std::optional<Descriptor>> memory;
  std::vector<mluOpTensorDescriptor_t> desc;
  std::vector<void*> data;

  explicit Given(std::size_t count) : memory(count) {}
  void add(const Part& part, Shape shape, mluOpDataType_t dtype, void* block) {
    // Each tensor is wrong by a different amount. If two agreed, the error would blame another one.
    const auto times = static_cast<std::int64_t>(desc.size()) + 1;
    for (std::size_t d = 0; d < shape.size(); ++d) shape[d] += part.wrong_extent[d] * times;
    if (!part.right_rank) shape.push_back(1);
    Shape stride(shape.size(), part.strided ? 2 : 1);
    for (std::size_t d = shape.size() - 1; d-- > 0;) stride[d] = stride[d + 1] * shape[d + 1];
    const Descriptor& made = memory[desc.size()].emplace(part.right_dtype ? dtype : MLUOP_DTYPE_COMPLEX_FLOAT,
                                                         shape, stride, part.layout);
    desc.push_back(made.when(part.described));
    data.push_back(part.has_data ? block : nullptr);
  }
};

// Adds stairs for one kind of fault, one per tensor.
template <class Call>
struct EachTensor {
  Stairs<Call>& stairs;
  std::vector<std::string> names;

  void missing(std::size_t i, const std::string& more = "") const {
    stairs.bad(names[i] + " is missing" + more, [i](Call& c) { c.parts[i].described = true; });
  }
  void ranks() const {
    for (std::size_t i = 0; i < names.size(); ++i)
      stairs.bad(names[i] + " has ", [i](Call& c) { c.parts[i].right_rank = true; });
  }
  void dtypes() const {
    for (std::size_t i = 0; i < names.size(); ++i)
      stairs.bad(names[i] + " has dtype ", [i](Call& c) { c.parts[i].right_dtype = true; });
  }
  void layouts() const {
    for (std::size_t i = 0; i < names.size(); ++i)
      stairs.bad(names[i] + " has layout LAYOUT_NTC, expected LAYOUT_ARRAY",
                 [i](Call& c) { c.parts[i].layout = MLUOP_LAYOUT_ARRAY; });
  }
  void extent(std::size_t i, std::size_t d) const {
    stairs.bad(names[i] + ".shape[" + std::to_string(d) + "] is ",
               [i, d](Call& c) { c.parts[i].wrong_extent[d] = 0; });
  }
  void extents() const {
    const Call call;
    for (std::size_t i = 0; i < names.size(); ++i)
      for (std::size_t d = 0; d < call.parts[i].wrong_extent.size(); ++d) extent(i, d);
  }
  void strided() const {
    for (std::size_t i = 0; i < names.size(); ++i)
      stairs.unsupported(names[i] + " is strided", [i](Call& c) { c.parts[i].strided = false; });
  }
  void data() const {
    for (std::size_t i = 0; i < names.size(); ++i)
      stairs.bad(names[i] + ".data is null", [i](Call& c) { c.parts[i].has_data = true; });
  }
};

}  // namespace turnout::test
