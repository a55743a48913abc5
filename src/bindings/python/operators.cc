// The adapter for Python, and the functions that use it.
#include "bindings/python/operators.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <deque>
#include <new>
#include <string>

#include "bindings/call.h"
#include "bindings/python/call.h"
#include "bindings/schema.h"
#include "registry.h"

namespace turnout::bindings {

using namespace core;
namespace {

// A Python function: an operator, its names in Python, and which threads it uses.
struct OperatorFunction {
  const Operator& op;
  Schema schema;
  Renames renames;
  bool use_torch_threads;
  std::string name;
  PyMethodDef method = {};

  OperatorFunction(const Operator& its_op, bool torch)
      : op(its_op),
        schema(its_op.for_bindings(), torch ? Convention::functional : Convention::in_place),
        // Callers pass the only result of a function as `out`.
        renames(schema.results().size() == 1
                    ? Renames(its_op.for_bindings().arguments[schema.results()[0]].name, "out")
                    : Renames()),
        use_torch_threads(torch),
        name(function_of(*its_op.signature) == nullptr ? its_op.signature->op
                                                       : function_of(*its_op.signature)->name) {}

  std::size_t parameter_count() const { return schema.parameters().size(); }
};

class PythonAdapter : public PythonCall {
 public:
  PythonAdapter(const OperatorFunction& function, PyObject* const* arguments, std::size_t count)
      : PythonCall(function.schema.signature(), function.name, function.renames, function.use_torch_threads),
        function_(function),
        arguments_(arguments),
        count_(std::min(count, function.parameter_count())),
        outs_(static_cast<int>(function.schema.results().size()), nb::handle(Py_None)) {
    result_count_ = static_cast<int>(function.schema.results().size());
    if (count <= count_ || arguments[count_] == Py_None) return;
    if (result_count_ == 1) {
      outs_[0] = arguments[count_];
    } else {
      read_outs(arguments[count_]);
    }
  }

  bool is_passed(int i) const { return static_cast<std::size_t>(i) < count_; }
  bool is_given(int i) const { return is_passed(i) && arguments_[i] != Py_None; }
  Tensor tensor(int i, int argument, bool is_written) { return import(object(i), argument, is_written); }
  std::int64_t integer(int i) const { return PythonCall::integer(object(i), name(i)); }
  double real(int i) const { return number(object(i), name(i)); }
  bool flag(int i) const { return PythonCall::flag(object(i), name(i)); }
  std::int64_t choice(int i, const Scalar& scalar) const { return named_value(object(i), scalar); }
  std::vector<std::int64_t> integers(int i, std::int64_t length, bool may_be_single) const {
    // The operator's checks refuse a wrong number of elements, except one too large to be read.
    const std::string expected = length < 0 ? "" : concat(length);
    const std::int64_t single = !may_be_single ? -1 : length < 0 ? 1 : length;
    std::vector<std::int64_t> values =
        PythonCall::integers(object(i), name(i), {0, kMaxRank, expected, single});
    // torch has only lists: a list of one value stands for all elements.
    if (may_be_single && function_.use_torch_threads && values.size() == 1 && length > 1)
      values.resize(static_cast<std::size_t>(length), values[0]);
    return values;
  }
  std::vector<double> reals(int i, std::int64_t length) const { return numbers(object(i), name(i), length); }
  bool has_out(int result) const { return outs_[result].ptr() != Py_None; }
  Tensor out(int result, int argument) {
    return PythonCall::out({outs_[result], argument, result}, nullptr, 0);
  }
  Tensor new_result(int result, int argument, DType dtype, const std::int64_t* shape, int rank) {
    return PythonCall::out({Py_None, argument, result}, shape, rank, dtype);
  }
  void no_result(int result, int argument, DType dtype) {
    if (function_.use_torch_threads) {
      // A torch operator always returns tensors. absent_result() of turnout.torch does the same.
      constexpr std::int64_t kNoElements = 0;
      PythonCall::out({Py_None, argument, result}, &kNoElements, 1, dtype);
    } else {
      result_at(result) = nb::none();
    }
  }
  CallerNames names() const { return caller_names(); }
  template <class Body>
  void run(const Body& body, bool is_last) const {
    run_step(body, is_last);
  }

 private:
  nb::handle object(int i) const { return is_passed(i) ? nb::handle(arguments_[i]) : nb::handle(Py_None); }
  std::string_view name(int i) const {
    return function_.schema.parameters()[static_cast<std::size_t>(i)].name;
  }
  void read_outs(nb::handle tuple) {
    const auto expected = [&] {
      std::string names;
      for (int argument : function_.schema.results())
        if (is_wanted(argument))
          names += concat(names.empty() ? "" : ", ", function_.schema.signature().arguments[argument].name);
      return concat("a tuple of ", names, "; None allocates");
    };
    const auto& results = function_.schema.results();
    const auto wanted = static_cast<std::size_t>(
        std::count_if(results.begin(), results.end(), [&](int argument) { return is_wanted(argument); }));
    if (!nb::isinstance<nb::tuple>(tuple)) refuse_type(tuple, "out", expected());
    const auto given = nb::borrow<nb::tuple>(tuple);
    if (given.size() != wanted)
      refuse(concat("out has ", static_cast<std::int64_t>(given.size()), " entries, expected ", expected()));
    for (std::size_t i = 0, next = 0; i < results.size(); ++i)
      if (is_wanted(results[i])) outs_[static_cast<int>(i)] = given[next++];
  }
  // Whether `out` has an entry for a result, which results that the caller does not request lack.
  bool is_wanted(int argument) const {
    const auto& parameters = function_.schema.parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (parameters[p].kind == Parameter::Kind::request && parameters[p].position == argument)
        return is_given(static_cast<int>(p)) && flag(static_cast<int>(p));
    return true;
  }

  const OperatorFunction& function_;
  PyObject* const* arguments_;
  std::size_t count_;
  BoundedArray<nb::handle, kMaxArguments> outs_;
};

PyObject* call_function(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return staying_at_exit([&] {
    return raising_errors([&]() -> PyObject* {
      const auto& function = *static_cast<const OperatorFunction*>(PyCapsule_GetPointer(self, nullptr));
      const std::size_t most = function.parameter_count() + 1;
      if (static_cast<std::size_t>(count) > most)
        throw nb::type_error(concat(function.name, ": takes at most ", static_cast<std::int64_t>(most),
                                    " arguments, but ", std::int64_t{count}, " were given")
                                 .c_str());
      PythonAdapter adapter(function, arguments, static_cast<std::size_t>(count));
      OperatorCall call(function.op, function.schema, adapter);
      call.run();
      return adapter.result().release().ptr();
    });
  });
}

nb::object make_function(const Operator& op, bool use_torch_threads) {
  // Functions live as long as the process, as the module does.
  static auto& functions = *new std::deque<OperatorFunction>;
  OperatorFunction& function = functions.emplace_back(op, use_torch_threads);
  const nb::object self = nb::steal(PyCapsule_New(&function, nullptr, nullptr));
  function.method = {function.name.c_str(),
                     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call_function)), METH_FASTCALL,
                     nullptr};
  return nb::steal(PyCFunction_NewEx(&function.method, self.ptr(), nullptr));
}

nb::list names_of(const Signature& signature, const Extent& extent) {
  nb::list names;
  for (const std::int8_t name : extent.names) names.append(text_of(signature.names[name]));
  return names;
}

nb::list dims_of(const Signature& signature, const Argument& argument) {
  nb::list dims;
  for (const Extent& extent : argument.dims)
    dims.append(nb::make_tuple(names_of(signature, extent), extent.factor, extent.add, extent.optional,
                               extent.is_folded));
  return dims;
}

bool is_floating(const Signature& signature, const Argument& argument) {
  if ((argument.dtypes & kFloats) != 0) return true;
  return argument.like >= 0 && is_floating(signature, signature.arguments[argument.like]);
}

nb::object name_or_none(const Signature& signature, int argument) {
  if (argument < 0) return nb::none();
  return nb::str(text_of(signature.arguments[argument].name).c_str());
}

}  // namespace

namespace {

std::vector<std::string_view>& by_hand() {
  static std::vector<std::string_view> names;
  return names;
}
std::vector<const Operator*>& derived() {
  static std::vector<const Operator*> all;
  return all;
}
std::vector<const PythonFunction*>& renamed() {
  static std::vector<const PythonFunction*> all;
  return all;
}

}  // namespace

void bound_by_hand(std::string_view op) { by_hand().push_back(op); }
void bound_as(const PythonFunction& function) { renamed().push_back(&function); }
const PythonFunction* function_of(const Signature& signature) {
  for (const PythonFunction* function : renamed())
    if (&function->signature == &signature) return function;
  return nullptr;
}
const std::vector<const Operator*>& derived_operators() { return derived(); }

void bind_operators(nb::module_& module) {
  nb::module_ torch = module.def_submodule("torch");
  for (const Operator& op : operators()) {
    const std::string name(op.signature->op);
    const bool is_by_hand = nb::hasattr(module, name.c_str()) ||
                            std::find(by_hand().begin(), by_hand().end(), name) != by_hand().end();
    if (!is_by_hand) {
      module.attr(name.c_str()) = make_function(op, false);
      derived().push_back(&op);
    }
    torch.attr(name.c_str()) = make_function(op, true);
  }
}

nb::list schemas() {
  static constexpr const char* kKinds[] = {"tensor",  "scalar", "size",  "size_flag",
                                           "request", "unused", "unused"};
  nb::list all;
  for (const Operator& op : operators()) {
    const Signature& signature = op.for_bindings();
    const Schema schema(signature);
    nb::list parameters, results, computed;
    for (const Parameter& one : schema.parameters()) {
      nb::dict row;
      row["name"] = text_of(one.name);
      row["kind"] = kKinds[static_cast<int>(one.kind)];
      row["dims"] = one.kind == Parameter::Kind::tensor
                        ? dims_of(signature, signature.arguments[one.position])
                        : nb::list();
      row["is_floating"] =
          one.kind == Parameter::Kind::tensor && is_floating(signature, signature.arguments[one.position]);
      parameters.append(row);
    }
    for (const int position : schema.results()) {
      const Argument& argument = signature.arguments[position];
      nb::dict row;
      row["name"] = text_of(argument.name);
      row["dims"] = dims_of(signature, argument);
      row["like"] = name_or_none(signature, argument.like);
      row["is_lane"] = argument.is_lane;
      row["dtype"] = argument.like < 0 ? library_name(argument.default_dtype()) : "";
      row["with"] = name_or_none(signature, argument.required_with);
      row["request"] = text_of(argument.request);
      row["is_floating"] = is_floating(signature, argument);
      row["is_shortened"] = argument.is_shortened;
      results.append(row);
    }
    for (int name = signature.scalars.count; name < signature.names.count; ++name)
      if (signature.size_kinds[name - signature.scalars.count] != SizeKind::shapes)
        computed.append(text_of(signature.names[name]));
    nb::dict entry;
    entry["op"] = text_of(signature.op);
    entry["schema"] = schema.text();
    entry["parameters"] = parameters;
    entry["results"] = results;
    entry["computed"] = computed;
    all.append(entry);
  }
  return all;
}

}  // namespace turnout::bindings
