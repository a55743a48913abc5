// Generates every fault that a signature can detect, each with the step that must detect it, and inserts it
// into a call of the C operator.
#pragma once

#include <gtest/gtest.h>

#include <climits>
#include <functional>
#include <limits>

#include "c_conditions.h"

namespace turnout::test {

class CNegative : public CConditions {
 protected:
  mluOpHandle_t handle = nullptr;
  std::size_t workspace_size = 0;  // of the valid call
  std::vector<Fault> faults;

  void SetUp() override {
    ASSERT_EQ(mluOpCreate(&handle), MLUOP_STATUS_SUCCESS);
    workspace_size = BrokenCall(op).workspace_size(op, handle);
    generate();
  }
  void TearDown() override { mluOpDestroy(handle); }

  mluOpStatus_t status_of(const Fault& fault) const {
    if (fault.step == kHandle) return MLUOP_STATUS_BAD_PARAM;
    const core::Step& step = signature.order[fault.step];
    if (step.check == Check::any_empty || step.check == Check::outputs_empty) return MLUOP_STATUS_SUCCESS;
    return step.code == ErrorCode::bad_param ? MLUOP_STATUS_BAD_PARAM : MLUOP_STATUS_NOT_SUPPORTED;
  }

  // Adds the fault if some step detects it. If the signature has this kind of check, a step must cover the
  // argument, except for the limit of elements, which the interface sets only for some arguments.
  void add(Fault fault) {
    bool known = false;
    for (int s = signature.order.count; s-- > 0;) {
      const core::Step& step = signature.order[s];
      if (step.check != fault.check) continue;
      known = true;
      const bool concerned = step.selects_positions()
                                 ? step.looks_at(fault.position)
                                 : fault.argument < 0 || step.looks_at(fault.argument, fault.dim);
      if (concerned) fault.step = s;
    }
    // A wrong extent that binds a size is detected at the next use of that size.
    if (known && fault.check == Check::shapes && has_all_dims(broken_by(fault)))
      fault.step = broken_by(fault).shapes_end();
    EXPECT_TRUE(!known || fault.step != kHandle || fault.check == Check::large)
        << "no step looks at " << fault.what;
    if (fault.step != kHandle) faults.push_back(fault);
  }

  void generate() {
    faults.push_back({.what = "handle NULL",
                      .check = Check::handle,
                      .mentions = {"handle"},
                      .apply = [](BrokenCall& call) { call.has_handle = false; }});
    for (int s = 0; s < signature.order.count; ++s)
      if (signature.order[s].check == Check::handle) faults.back().step = s;
    for (int i = 0; i < signature.arguments.count; ++i) generate_argument(i);
    for (int i = 0; i < signature.scalars.count; ++i) generate_scalar(i);
    for (int i = 0; i < signature.rules.count; ++i) generate_rule(i);
    for (int i = 0; i < signature.data_checks.count; ++i) generate_data(i);
    for (int name = 0; name < signature.names.count; ++name)
      if (!generate_empty(name, name))
        for (int other = 0; other < name; ++other) generate_empty(name, other);
    if (op.query != nullptr) generate_workspace();
  }

  // Sets one size to 0, or two if `other` differs from `name`, so that a tensor has no elements.
  bool generate_empty(int name, int other) {
    if (is_pinned_by_data(name) || is_pinned_by_data(other)) return false;
    Fault fault{
        .what = std::string(signature.names[name]) + " and " + std::string(signature.names[other]) + " 0",
        .apply = [=](BrokenCall& call) {
          call.set_size(static_cast<std::size_t>(name), 0);
          call.set_size(static_cast<std::size_t>(other), 0);
        }};
    const BrokenCall call = broken_by(fault);
    for (int s = 0; s < signature.order.count; ++s) {
      if (!ends_as_empty(signature.order[s], call)) continue;
      fault.check = signature.order[s].check;
      fault.step = s;
      for (int i = 0; i < signature.arguments.count; ++i)
        if (signature.order[s].looks_at(i)) fault.mentions.insert(signature.arguments[i].name);
      if (refused_before(fault)) return false;
      faults.push_back(fault);
      return true;
    }
    return false;
  }

  void generate_workspace() {
    const auto fault = [&](const char* what, std::function<void(BrokenCall&)> apply,
                           Check check = Check::workspace) {
      add({.what = what, .check = check, .mentions = {"workspace"}, .apply = std::move(apply)});
    };
    const auto as_null = [](BrokenCall& c) {
      c.has_workspace = false;
      c.more_workspace = 1;
    };
    fault("workspace NULL, needed or not", as_null, Check::workspace_null);
    if (workspace_size == 0) return;
    if (!step_of(Check::workspace_null))
      fault("workspace NULL", [](BrokenCall& c) { c.has_workspace = false; });
    fault("workspace one byte too small", [](BrokenCall& c) { c.missing_workspace = 1; });
    fault("no workspace", [all = workspace_size](BrokenCall& c) {
      c.has_workspace = false;
      c.missing_workspace = all;
    });
  }

  void generate_argument(int i) {
    const auto n = static_cast<std::size_t>(i);
    const Argument& argument = signature.arguments[i];
    const BrokenCall valid(op);
    const auto fault = [&](const std::string& what, Check check, std::function<void(BrokenCall&)> apply) {
      add({std::string(argument.name) + " " + what, check, i, -1, {argument.name}, std::move(apply)});
    };
    // An optional argument may be absent, but a descriptor without data, or data without one, is a fault.
    const bool required = !argument.optional || argument.required_with >= 0;
    const bool is_present_checked =
        step_of(Check::present) == nullptr ||
        std::any_of(signature.order.begin(), signature.order.end(),
                    [&](const core::Step& step) { return step.check == Check::present && step.looks_at(i); });
    fault("without descriptor", required && is_present_checked ? Check::present : Check::pointers,
          [=](BrokenCall& c) { c.parts[n].described = false; });
    if (argument.by_pointer) return;  // it has no shape or memory that could be wrong
    const int optional = optional_dim(argument);
    if (optional >= 0 && others_have(i, argument.dims[optional]))
      add({std::string(argument.name) + " alone without " + std::string(argument.dims[optional].text),
           Check::shapes,
           i,
           optional,
           {argument.dims[optional].text},
           [=](BrokenCall& c) { c.parts[n].without_optional_dim = true; }});
    for (int change : {optional >= 0 ? -2 : -1, 1, kMaxRank})
      fault("rank " + std::to_string(change), Check::ranks,
            [=](BrokenCall& c) { c.parts[n].rank_change = change; });
    for (int value = 0; value < 128; ++value) {
      const auto dtype = static_cast<mluOpDataType_t>(value);
      const DType known = bindings::dtype_of_c(dtype);
      if (contains(argument.dtypes, known)) continue;
      if (argument.like >= 0 && valid.example.tensors[static_cast<std::size_t>(argument.like)].dtype == known)
        continue;
      fault("dtype " + std::to_string(value), Check::dtypes,
            [=](BrokenCall& c) { c.parts[n].dtype = dtype; });
    }
    for (int layout : {static_cast<int>(MLUOP_LAYOUT_NCHW), static_cast<int>(MLUOP_LAYOUT_NTC), 77})
      fault("layout " + std::to_string(layout), Check::layout,
            [=](BrokenCall& c) { c.parts[n].layout = static_cast<mluOpTensorLayout_t>(layout); });
    for (int d = 0; d < argument.dims.count; ++d) {
      for (std::int64_t change : {-1000, -1, 1}) {
        if (change > -1000 && !is_pinned(i, argument.dims[d])) continue;
        // If two arguments disagree on a size, the message may name either of them.
        add({std::string(argument.name) + " extent " + std::to_string(d) + " by " + std::to_string(change),
             Check::shapes,
             i,
             d,
             {argument.name, argument.dims[d].text},
             [=](BrokenCall& c) { c.parts[n].extent_change[static_cast<std::size_t>(d)] += change; }});
      }
      for (std::int8_t name : argument.dims[d].names) generate_large(i, d, name);
    }
    if (valid.elements(i) > 1)  // a tensor of one element has no stride
      fault("strided", Check::contiguous, [=](BrokenCall& c) { c.parts[n].strided = true; });
    fault("without data", Check::pointers, [=](BrokenCall& c) { c.parts[n].has_data = false; });
    for (int other = 0; other < signature.arguments.count && argument.is_output(); ++other)
      if (other != i && other != argument.may_overlap)
        fault("in the memory of " + std::string(signature.arguments[other].name), Check::overlap,
              [=](BrokenCall& c) { c.parts[n].shared_with = other; });
  }

  // Argument i with 2^31 elements or slightly more, in a call whose shapes agree. Skipped if a scalar, which
  // is an int, would exceed INT_MAX.
  void generate_large(int i, int d, int name) {
    if (is_pinned_by_data(name)) return;
    const auto n = static_cast<std::size_t>(name);
    const BrokenCall valid(op);
    const Extent& dim = signature.arguments[i].dims[d];
    const std::int64_t extent = valid.example.evaluate(dim);
    const std::int64_t other_dims = valid.elements(i) / extent;
    const std::int64_t other_names = (extent - dim.add) / valid.example.sizes[n];
    const std::int64_t least = (kLarge + other_dims - 1) / other_dims;  // smallest extent
    const std::int64_t value = (least - dim.add + other_names - 1) / other_names;
    if (name < signature.scalars.count &&
        value > std::min<std::int64_t>(INT_MAX, signature.scalars[name].max))
      return;
    Fault fault{
        .what = std::string(signature.arguments[i].name) + " large by " + std::string(signature.names[name]),
        .check = Check::large,
        .argument = i,
        .apply = [=](BrokenCall& call) { call.set_size(n, value); }};
    if (!refused_before(fault)) add(fault);
  }

  void generate_scalar(int i) {
    const auto n = static_cast<std::size_t>(i);
    const Scalar& scalar = signature.scalars[i];
    const std::string name(scalar.name);
    const auto change_by = [=, is_vector = scalar.is_vector](std::int64_t change) {
      return [=](BrokenCall& c) { (is_vector ? c.example.vectors[n].back() : c.scalar_change[n]) += change; };
    };
    if (scalar.is_flag) return;  // a bool has no invalid values
    if (scalar.is_real && !scalar.is_vector) {
      for (double wrong : {scalar.least - 1, std::numeric_limits<double>::quiet_NaN()})
        add({name + " = " + std::to_string(wrong),
             Check::scalars,
             -1,
             -1,
             {scalar.name},
             [=](BrokenCall& c) { c.example.reals[n][0] = wrong; },
             i});
      return;
    }
    const BrokenCall valid(op);
    const std::int64_t value = scalar.is_vector ? valid.example.vectors[n].back() : valid.example.sizes[n];
    for (std::int64_t wrong :
         {scalar.min - 1, scalar.max + (scalar.max < INT_MAX ? 1 : 0), std::int64_t{INT_MIN}})
      if (wrong < scalar.min || (wrong > scalar.max && wrong <= INT_MAX))
        add({name + " = " + std::to_string(wrong),
             Check::scalars,
             -1,
             -1,
             {scalar.name},
             change_by(wrong - value),
             i});
    for (int a = 0; a < signature.arguments.count && !scalar.is_vector; ++a) {
      for (int d = 0; d < signature.arguments[a].dims.count; ++d) {
        if (!uses(signature.arguments[a].dims[d], i)) continue;
        add({name + " one more", Check::shapes, a, d, {scalar.name}, change_by(1)});
        add({name + " one less", Check::shapes, a, d, {scalar.name}, change_by(-1)});
        return;  // one dimension is enough
      }
    }
  }

  // A call whose shapes agree and in which the rule's left side is one too large.
  void generate_rule(int position) {
    const Rule& rule = signature.rules[position];
    if (rule.left.names.count == 0) {  // such as "1 <= name"
      add({std::string(rule.right.text) + " below " + std::string(rule.left.text),
           Check::rules,
           -1,
           -1,
           {rule.right.text, ".shape["},
           [n = static_cast<std::size_t>(rule.right.names[0]), least = rule.left.factor](BrokenCall& call) {
             call.set_size(n, least - 1);
           },
           position});
    }
    for (std::int8_t name : rule.left.names) {
      if (uses(rule.right, name)) continue;
      const BrokenCall valid(op);
      const auto n = static_cast<std::size_t>(name);
      const std::int64_t rest = valid.example.evaluate(rule.left) / valid.example.sizes[n];
      const std::int64_t value = valid.example.evaluate(rule.right) / rest + 1;
      add({std::string(rule.left.text) + " above " + std::string(rule.right.text),
           Check::rules,
           -1,
           -1,
           {rule.left.text, ".shape["},
           [=](BrokenCall& call) { call.set_size(n, value); },
           position});
    }
  }

  void generate_data(int position) {
    const std::string_view changes = op.data_faults[position];
    Fault fault{.what = std::string(changes),
                .check = Check::data,
                .apply = [=](BrokenCall& call) { call.change(changes); },
                .position = position};
    core::split(changes, ' ', [&](std::string_view part) {
      fault.mentions.insert(part.substr(0, part.find_first_of("=.")));
    });
    core::split(signature.data_checks[position].looks_at, ' ',
                [&](std::string_view name) { fault.mentions.insert(name); });
    add(fault);
  }

  mluOpStatus_t invoke(BrokenCall& call) const {
    const mluOpStatus_t status = call.invoke(op, handle, workspace_size);
    last_message = turnoutLastError();
    return status;
  }

  // Expects that the call ends with the error of `fault`, although it may have other faults.
  void expect_end(const Fault& fault, BrokenCall& call, const std::string& what) const {
    call.example.paint_outputs();
    const std::string before = call.example.output_bytes();
    ASSERT_EQ(invoke(call), status_of(fault)) << what << ": " << last_message;
    if (status_of(fault) != MLUOP_STATUS_SUCCESS || !op.writes_when_empty) {
      EXPECT_EQ(before, call.example.output_bytes()) << what << ": the call wrote to an output";
    }
    if (status_of(fault) == MLUOP_STATUS_SUCCESS) {
      EXPECT_EQ(last_message, "") << what;
      return;
    }
    EXPECT_EQ(last_message.rfind(std::string(signature.op) + ": ", 0), 0u) << last_message;
    bool mentioned = false;
    for (int i = 0; i < signature.arguments.count; ++i)  // the message may name any of the large tensors
      mentioned |= fault.check == Check::large && call.elements(i) >= kLarge &&
                   last_message.find(signature.arguments[i].name) != std::string::npos;
    for (std::string_view name : fault.mentions) mentioned |= last_message.find(name) != std::string::npos;
    EXPECT_TRUE(mentioned) << what << ": '" << last_message << "' names something else";
  }

  mutable std::string last_message;
};

}  // namespace turnout::test
