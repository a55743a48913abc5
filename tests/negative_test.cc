// Calls every operator with every fault that its signature can detect. Each call must fail with the right
// code and a message that names the argument, and must write nothing. The test has no code per operator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "example_call.h"
#include "last_log_line.h"
#include "registry.h"
#include "turnout/error.h"

namespace turnout::test {
namespace {

using core::Check;
using core::contains;
using core::Operator;
using core::Role;

struct Outcome {
  bool failed = false;
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

Outcome call(Context& context, const Operator& op, ExampleCall& example) {
  example.paint_outputs();
  const std::string before = example.output_bytes();
  const auto scalars = example.scalar_values();
  try {
    op.invoke(context, example.tensors.data(), scalars.data());
  } catch (const Error& error) {
    EXPECT_EQ(before, example.output_bytes()) << error.what() << ": a failing call wrote to an output";
    return {true, error.code(), error.what()};
  }
  return {};
}

class Negative : public testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op = *GetParam();
  const Signature& signature = *op.signature;
  Context context{{.threads = 2}};
  int generated = 0;

  ExampleCall valid_call(bool drop_optional = false) const {
    ExampleCall example(signature, op.example, drop_optional);
    if (op.prepare != nullptr) op.prepare(example.tensors.data());
    return example;
  }

  // Expects that a valid call fails after `damage`. The message must start with the operator's name and
  // contain `mention`, or the name of a size on which arguments disagree.
  template <class Damage>
  void expect_rejected(std::string_view what, std::string_view mention, const Damage& damage,
                       bool drop_optional = false, std::string_view or_size = {}) {
    ExampleCall example = valid_call(drop_optional);
    damage(example);
    const Outcome outcome = call(context, op, example);
    ++generated;
    ASSERT_TRUE(outcome.failed) << what << " of " << mention << " was accepted";
    EXPECT_EQ(outcome.code, ErrorCode::bad_param) << outcome.message;
    EXPECT_EQ(outcome.message.rfind(std::string(signature.op) + ": ", 0), 0u) << outcome.message;
    const bool names_size =
        !or_size.empty() && outcome.message.find(" " + std::string(or_size)) != std::string::npos;
    EXPECT_TRUE(names_size || outcome.message.find(mention) != std::string::npos)
        << what << ": '" << outcome.message << "' does not name " << mention;
  }

  // Whether an extent or a rule uses this name.
  bool is_used(int name) const {
    const auto has = [&](const Extent& e) { return std::count(e.names.begin(), e.names.end(), name) > 0; };
    for (const core::Rule& rule : signature.rules)
      if (has(rule.left) || has(rule.right)) return true;
    for (const Argument& argument : signature.arguments)
      if (std::any_of(argument.dims.begin(), argument.dims.end(), has)) return true;
    return false;
  }

  // Whether only outputs have this size. How many elements they need may depend on the data.
  bool is_room(int name) const {
    for (const Argument& argument : signature.arguments)
      for (const Extent& dim : argument.dims)
        if (!argument.is_output() && std::count(dim.names.begin(), dim.names.end(), name) > 0) return false;
    return true;
  }

  // Whether a data check relates this size to others: w13 of moe_experts has two rows for each inner element.
  bool is_related(int name) const {
    for (const core::DataCheck& check : signature.data_checks)
      if ((" " + std::string(check.looks_at) + " ").find(" " + std::string(signature.names[name]) + " ") !=
          std::string::npos)
        return true;
    return false;
  }

  // Whether another argument or scalar determines this extent, so that changing only this one is an error.
  bool is_pinned(int argument, const Extent& dim) const {
    if (dim.names.count == 0) return true;
    for (std::int8_t name : dim.names) {
      if (name < signature.scalars.count) return true;
      for (int other = 0; other < signature.arguments.count; ++other) {
        if (other == argument) continue;
        for (const Extent& d : signature.arguments[other].dims)
          for (std::int8_t n : d.names)
            if (n == name) return true;
      }
    }
    return false;
  }
};

TEST_P(Negative, TheExampleItselfSucceeds) {
  for (bool drop_dimensions : {false, true}) {
    for (bool drop_arguments : {false, true}) {
      ExampleCall example = valid_call(drop_dimensions);
      for (int i = 0; i < signature.arguments.count; ++i)
        if (drop_arguments && signature.arguments[i].optional) example.tensors[i] = Tensor(nullptr);
      const Outcome outcome = call(context, op, example);
      EXPECT_FALSE(outcome.failed) << outcome.message;
    }
  }
}

TEST_P(Negative, TheExampleLogsOneLineWithItsAlgorithm) {
  for (bool drop_optional : {false, true}) {
    ExampleCall example = valid_call(drop_optional);
    const LastLogLine line;
    ASSERT_FALSE(call(context, op, example).failed);
    EXPECT_EQ(line.count(), 1) << line.text();
    EXPECT_TRUE(line.has("[turnout] " + std::string(signature.op) + "(")) << line.text();
    EXPECT_NE(line.value("algorithm"), "") << line.text();
  }
}

TEST_P(Negative, Ranks) {
  for (int i = 0; i < signature.arguments.count; ++i) {
    const Argument& argument = signature.arguments[i];
    int optional = -1;
    bool may_spread = false;
    for (int d = 0; d < argument.dims.count; ++d) {
      if (argument.dims[d].optional) optional = d;
      may_spread |= argument.dims[d].is_folded && argument.dims[d].names.count == 1;
    }
    if (!may_spread)
      expect_rejected("one dimension more", argument.name, [&](ExampleCall& e) {
        Tensor& t = e.tensors[i];
        t.shape[t.rank] = 1;
        t.stride[t.rank] = 1;
        ++t.rank;
      });
    expect_rejected(
        "one dimension less", argument.name, [&](ExampleCall& e) { --e.tensors[i].rank; }, optional >= 0);
    expect_rejected("nine dimensions", argument.name, [&](ExampleCall& e) { e.tensors[i].rank = 9; });
    // Either all arguments have the optional dimension, or none.
    if (optional >= 0 && is_pinned(i, argument.dims[optional])) {
      expect_rejected("a lone optional dimension", argument.dims[optional].text, [&](ExampleCall& e) {
        std::vector<std::int64_t> shape;
        Tensor& t = e.tensors[i];
        for (int d = 0; d < t.rank; ++d)
          if (d != optional) shape.push_back(t.shape[d]);
        t = Tensor(t.data, t.dtype, shape.data(), static_cast<int>(shape.size()));
      });
    }
  }
}

TEST_P(Negative, DTypes) {
  for (int i = 0; i < signature.arguments.count; ++i) {
    const Argument& argument = signature.arguments[i];
    for (int d = 0; d < kDTypeCount; ++d) {
      const auto dtype = static_cast<DType>(d);
      const ExampleCall valid = valid_call();
      const bool same = argument.like >= 0 && valid.tensors[argument.like].dtype == dtype;
      if (contains(argument.dtypes, dtype) || same) continue;
      expect_rejected(name_of(dtype), argument.name, [&](ExampleCall& e) {
        e.tensors[i].dtype = dtype;
        e.allocate(i);
      });
    }
    // Numbers that are not a DType. Some would become one if a shift by them wrapped around.
    for (int d : {kDTypeCount, 30, int{static_cast<std::uint8_t>(core::kForeign)}, 32, 33, 34, 40, 64, 255})
      expect_rejected("an unknown dtype", argument.name,
                      [&](ExampleCall& e) { e.tensors[i].dtype = static_cast<DType>(d); });
  }
}

TEST_P(Negative, Extents) {
  for (int i = 0; i < signature.arguments.count; ++i) {
    const Argument& argument = signature.arguments[i];
    for (int d = 0; d < argument.dims.count; ++d) {
      const auto resize = [&](std::int64_t change) {
        return [=](ExampleCall& e) {
          std::int64_t shape[kMaxRank];
          Tensor& t = e.tensors[i];
          std::copy(t.shape, t.shape + kMaxRank, shape);
          shape[d] += change;
          t = Tensor(t.data, t.dtype, shape, t.rank);
          if (shape[d] >= 0) e.allocate(i);
        };
      };
      expect_rejected("a negative extent", argument.name, resize(-1000));
      if (!is_pinned(i, argument.dims[d])) continue;
      const auto& names = argument.dims[d].names;
      const std::string_view size = names.count == 1 ? signature.names[names[0]] : std::string_view();
      expect_rejected("an extent one too large", ".shape[", resize(1), false, size);
      expect_rejected("an extent one too small", ".shape[", resize(-1), false, size);
      const std::int64_t extent = valid_call().tensors[static_cast<std::size_t>(i)].shape[d];
      if (extent > 1) expect_rejected("an extent to broadcast", ".shape[", resize(1 - extent), false, size);
    }
  }
}

TEST_P(Negative, Memory) {
  for (int i = 0; i < signature.arguments.count; ++i) {
    const Argument& argument = signature.arguments[i];
    expect_rejected("a null pointer", argument.name, [&](ExampleCall& e) { e.tensors[i].data = nullptr; });
    for (int d = 0; d < argument.dims.count; ++d) {
      // The stride of a single element does not matter, and some arguments may have any strides.
      if (valid_call().tensors[i].shape[d] == 1 || !signature.needs_contiguous(i)) continue;
      expect_rejected("a strided tensor", argument.name,
                      [&](ExampleCall& e) { e.tensors[i].stride[d] += 1; });
    }
    if (size_of(valid_call().tensors[i].dtype) > 1) {
      expect_rejected("a misaligned pointer", argument.name, [&](ExampleCall& e) {
        e.tensors[i].data = static_cast<std::byte*>(e.tensors[i].data) + 1;
      });
    }
    if (!argument.is_output()) continue;
    for (int other = 0; other < signature.arguments.count; ++other) {
      if (other == i || other == argument.may_overlap) continue;
      expect_rejected("an output on top of another argument", argument.name, [&](ExampleCall& e) {
        e.tensors[i].data = e.memory[other]->data();
        e.memory[other]->resize(e.memory[other]->size() + e.memory[i]->size());
        e.tensors[i].data = e.tensors[other].data = e.memory[other]->data();
      });
      expect_rejected("an output whose last element is another's first", argument.name, [&](ExampleCall& e) {
        auto& block = *e.memory[i];
        const std::int64_t bytes = core::Slot(e.tensors[i]).elements() * size_of(e.tensors[i].dtype);
        const auto at = static_cast<std::size_t>((bytes - 1) / 8 * 8);
        block.resize(block.size() + e.memory[other]->size());
        e.tensors[i].data = block.data();
        e.tensors[other].data = reinterpret_cast<std::byte*>(block.data()) + at;
      });
    }
  }
}

TEST_P(Negative, Scalars) {
  for (int i = 0; i < signature.scalars.count; ++i) {
    const core::Scalar& scalar = signature.scalars[i];
    if (scalar.is_real) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      const auto set_real = [&](double value) {
        return [=](ExampleCall& e) { e.reals[static_cast<std::size_t>(i)].back() = value; };
      };
      expect_rejected("not a number", scalar.name, set_real(std::numeric_limits<double>::quiet_NaN()));
      if (std::isfinite(scalar.least))
        expect_rejected("below the least", scalar.name, set_real(std::nextafter(scalar.least, -kInfinity)));
      if (std::isfinite(scalar.most))
        expect_rejected("above the greatest", scalar.name, set_real(std::nextafter(scalar.most, kInfinity)));
      if (scalar.is_vector)
        expect_rejected("one element more", scalar.name, [&](ExampleCall& e) {
          e.reals[static_cast<std::size_t>(i)].push_back(scalar.default_real);
        });
      continue;
    }
    const auto set = [&](std::int64_t value) {
      return [&, value](ExampleCall& e) {
        if (scalar.is_vector) {
          e.vectors[i].back() = value;
        } else {
          e.sizes[i] = value;
        }
      };
    };
    if (scalar.is_flag) continue;  // a bool is always in range
    expect_rejected("below the least", scalar.name, set(scalar.min - 1));
    expect_rejected("far below", scalar.name, set(std::numeric_limits<std::int64_t>::min()));
    if (scalar.max != core::kSizeMax) expect_rejected("above the greatest", scalar.name, set(scalar.max + 1));
    if (scalar.is_vector) {
      expect_rejected("one element more", scalar.name,
                      [&](ExampleCall& e) { e.vectors[i].push_back(scalar.min); });
    } else if (scalar.values.empty()) {
      // A size that does not fit the shapes. Products saturate: they must not wrap to a size that fits.
      if (is_used(i))
        expect_rejected("one more than the shapes say", scalar.name, [&](ExampleCall& e) { ++e.sizes[i]; });
      expect_rejected("a product beyond int64", scalar.name, set(core::kSizeMax));
    }
  }
}

// A size of zero is valid unless a rule excludes it, and tensors without elements need no memory.
TEST_P(Negative, SizesOfZero) {
  for (int name = signature.scalars.count; name < signature.names.count; ++name) {
    const ExampleCall example = valid_call();
    std::string text;
    for (int n = 0; n < signature.names.count; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const bool is_real = n < signature.scalars.count && signature.scalars[n].is_real;
      std::string value = std::to_string(n == name ? 0 : example.sizes[at]);
      if (is_real) {
        value.clear();
        for (const double real : example.reals[at])
          value += (value.empty() ? "" : ",") + core::number_text(real);
      }
      text += std::string(signature.names[n]) + "=" + value + " ";
    }
    ExampleCall empty(signature, text);
    bool is_refused = false;
    for (const core::Rule& rule : signature.rules)
      is_refused |= empty.evaluate(rule.left) > empty.evaluate(rule.right);
    if (op.prepare != nullptr && !is_refused) op.prepare(empty.tensors.data());
    for (Tensor& t : empty.tensors)
      if (core::Slot(t).elements() == 0) t.data = nullptr;
    const Outcome outcome = call(context, op, empty);
    if ((is_room(name) || is_related(name)) && outcome.failed) {
      EXPECT_NE(outcome.message.find(".shape["), std::string::npos) << outcome.message;
      continue;
    }
    // An index into an empty dimension has no valid value.
    const std::string own(signature.names[name]);
    if (outcome.failed && (outcome.message.find("there are no " + own) != std::string::npos ||
                           outcome.message.find("since " + own + " is 0") != std::string::npos))
      continue;
    EXPECT_EQ(outcome.failed, is_refused) << signature.names[name] << " = 0: " << outcome.message;
    if (!is_refused) continue;
    EXPECT_NE(outcome.message.find(".shape["), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find(", expected "), std::string::npos) << outcome.message;
  }
}

std::vector<const Operator*> all_operators() {
  std::vector<const Operator*> all;
  for (const Operator& op : core::operators()) all.push_back(&op);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Operators, Negative, testing::ValuesIn(all_operators()),
                         [](const auto& one) { return std::string(one.param->signature->op); });

}  // namespace
}  // namespace turnout::test
