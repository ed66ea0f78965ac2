// Modules, functions and meshes in both forms.
#include "src/program/stablehlo/attribute.h"
#include "src/program/stablehlo/names.h"
#include "src/program/stablehlo/parser.h"
#include "src/program/stablehlo/type.h"
#include "src/program/text.h"

namespace axccl::program::stablehlo {
namespace {

using Form = AttrNode::Form;

constexpr std::string_view kVisibilities[] = {"private", "public", "nested"};

}  // namespace

Result<Module> Parser::Run() {
  if (ReadModule() && !in_.AtEnd()) (void)in_.Expected("the end of the text");
  if (in_.failed()) return in_.status();
  return std::move(module_);
}

// ---- modules ----

bool Parser::ReadModule() {
  std::vector<NamedAttr> attributes;
  if (in_.TryWord("module")) {
    std::string_view name;
    if (in_.Peek() == '@' && !in_.Name('@', &name)) return false;
    if (in_.TryWord("attributes") && (!in_.Expect("{") || !ReadEntries(&in_, 0, "}", &attributes))) return false;
    if (!in_.Expect("{")) return false;
    while (!in_.Try("}")) {
      if (!ReadItem()) return false;
    }
    return TakeModuleAttributes(attributes);
  }
  if (!in_.Try("\"builtin.module\"")) return in_.Expected("'module' or '\"builtin.module\"'");
  if (!in_.Expect("(") || !in_.Expect(")")) return false;
  if (in_.Try("<") && (!in_.Expect("{") || !ReadEntries(&in_, 0, "}", &attributes) || !in_.Expect(">"))) return false;
  if (!in_.Expect("(") || !in_.Expect("{")) return false;
  while (!in_.Try("}")) {
    if (!ReadItem()) return false;
  }
  if (!in_.Expect(")")) return false;
  if (in_.Try("{") && !ReadEntries(&in_, 0, "}", &attributes)) return false;
  return ReadNoTypes() && TakeModuleAttributes(attributes);
}

bool Parser::TakeModuleAttributes(const std::vector<NamedAttr>& attributes) {
  for (const NamedAttr& attribute : attributes) {
    const AttrNode& value = attribute.value;
    const bool is_replicas = attribute.key == "mhlo.num_replicas";
    if (is_replicas || attribute.key == "mhlo.num_partitions") {
      if (value.form != Form::kNumber || value.number < 1 || value.number > kMaxRanks)
        return in_.Fail(value.at, "expected a number from 1 to " + std::to_string(kMaxRanks));
      (is_replicas ? module_.replicas : module_.partitions) = value.number;
    } else if (!IsIgnored(attribute.key) && attribute.key != "sym_name" && attribute.key != "sym_visibility") {
      return in_.Fail(attribute.at,
                      RefusedAttribute("modules", attribute.key, "mhlo.num_replicas, mhlo.num_partitions"));
    }
  }
  return true;
}

// Reads a function or mesh.
bool Parser::ReadItem() {
  if (in_.Peek() == '"') return ReadGenericItem();
  const size_t mark = in_.Mark();
  std::string_view word, name;
  if (!in_.Word(&word)) return false;
  if (word == "func.func") return ReadFunc();
  AttrNode mesh;
  if (word == "sdy.mesh")
    return in_.Name('@', &name) && in_.Expect("=") && ReadMesh(&in_, &mesh) && ReadMeshAttributes() &&
           AddMesh(mark, name, mesh);
  return in_.Fail(mark, Quote(word) + " is not supported in a module; supported are func.func and sdy.mesh");
}

bool Parser::ReadGenericItem() {
  const size_t mark = in_.Mark();
  std::string_view word;
  if (!in_.String(&word)) return false;
  if (word == "func.func") return ReadGenericFunc(mark);
  if (word != "sdy.mesh")
    return in_.Fail(mark, Quote(word) + " is not supported in a module; supported are func.func and sdy.mesh");
  std::vector<NamedAttr> attributes;
  if (!in_.Expect("(") || !in_.Expect(")") || !in_.Expect("<") || !in_.Expect("{") ||
      !ReadEntries(&in_, 0, "}", &attributes) || !in_.Expect(">") || !ReadMeshAttributes() || !ReadNoTypes())
    return false;
  const NamedAttr *const mesh = Find(attributes, "mesh"), *const name = Find(attributes, "sym_name");
  if (attributes.size() != 2 || mesh == nullptr || name == nullptr || mesh->value.form != Form::kMesh ||
      name->value.form != Form::kText)
    return in_.Fail(mark, "expected mesh and sym_name as attributes of sdy.mesh");
  return AddMesh(mark, name->value.word, mesh->value);
}

// The same mesh in other words, which is not read, or what is ignored anywhere.
bool Parser::ReadMeshAttributes() {
  std::vector<NamedAttr> attributes;
  if (in_.Try("{") && !ReadEntries(&in_, 0, "}", &attributes)) return false;
  for (const NamedAttr& attribute : attributes) {
    if (!IsIgnored(attribute.key) && attribute.key != "stablehlo.mesh")
      return in_.Fail(attribute.at, RefusedAttribute("sdy.mesh", attribute.key, "stablehlo.mesh"));
  }
  return true;
}

// `: () -> ()`
bool Parser::ReadNoTypes() {
  return in_.Expect(":") && in_.Expect("(") && in_.Expect(")") && in_.Expect("->") && in_.Expect("(") &&
         in_.Expect(")");
}

bool Parser::AddMesh(size_t at, std::string_view name, const AttrNode& attr) {
  if (!symbols_.insert(name).second) return in_.Fail(at, "expected a name that is new, found " + Quote(name));
  Mesh& mesh = module_.meshes.emplace_back();
  mesh.at = at;
  mesh.name = name;
  mesh.device_ids = attr.ints;
  for (const NamedAttr& axis : attr.fields) mesh.axes.push_back({axis.key, axis.value.number});
  return true;
}

// ---- functions ----

// `func.func private @name(%a: tensor<f32> {key = value}) -> (tensor<f32> {key = value}) attributes {...} {...}`,
// behind the first word
bool Parser::ReadFunc() {
  func_ = &module_.funcs.emplace_back();
  for (const std::string_view word : kVisibilities) {
    if (in_.TryWord(word)) break;
  }
  func_->at = in_.Mark();
  std::vector<std::vector<NamedAttr>> arguments;
  std::vector<NamedAttr> attributes;
  if (!in_.Name('@', &func_->name) || !in_.Expect("(") || !ReadParameters(&arguments)) return false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!TakeDonation(i, arguments[i])) return false;
  }
  if (in_.Try("->") && !ReadFuncResults()) return false;
  if (in_.TryWord("attributes") && (!in_.Expect("{") || !ReadEntries(&in_, 0, "}", &attributes))) return false;
  if (in_.Peek() != '{') return in_.Expected("'{', because functions without a body are not supported");
  return in_.Expect("{") && ReadBody(0, 0, &func_->body) && CheckFunc(attributes);
}

bool Parser::ReadParameters(std::vector<std::vector<NamedAttr>>* attributes) {
  if (in_.Try(")")) return true;
  std::vector<TensorType> types;
  do {
    const size_t mark = in_.Mark();
    std::string_view name;
    if (!in_.Name('%', &name) || !in_.Expect(":") || !ReadType(&in_, &types.emplace_back())) return false;
    if (!Define(mark, name, static_cast<ValueId>(types.size()) - 1, 1)) return false;
    attributes->emplace_back();
    if (in_.Try("{") && !ReadEntries(&in_, 0, "}", &attributes->back())) return false;
  } while (in_.Try(","));
  func_->types = types;
  func_->body.arguments = types.size();
  func_->donated.resize(types.size());
  return in_.Expect(")");
}

bool Parser::ReadFuncResults() {
  if (!in_.Try("(")) return ReadType(&in_, &func_->results.emplace_back());
  if (in_.Try(")")) return true;
  do {
    std::vector<NamedAttr> attributes;
    if (!ReadType(&in_, &func_->results.emplace_back())) return false;
    if (in_.Try("{") && !ReadEntries(&in_, 0, "}", &attributes)) return false;
    if (!CheckResultAttributes(attributes)) return false;
  } while (in_.Try(","));
  return in_.Expect(")");
}

// `"func.func"() <{attributes}> ({region}) {attributes} : () -> ()`, behind the name
bool Parser::ReadGenericFunc(size_t at) {
  func_ = &module_.funcs.emplace_back();
  func_->at = at;
  std::vector<NamedAttr> attributes;
  if (!in_.Expect("(") || !in_.Expect(")") || !in_.Expect("<") || !in_.Expect("{") ||
      !ReadEntries(&in_, 0, "}", &attributes) || !in_.Expect(">") || !in_.Expect("("))
    return false;
  const NamedAttr *const type = Find(attributes, "function_type"), *const name = Find(attributes, "sym_name");
  if (type == nullptr || type->value.form != Form::kType || name == nullptr || name->value.form != Form::kText)
    return in_.Fail(at, "expected function_type and sym_name as attributes of func.func");
  func_->name = name->value.word;
  const auto outputs = type->value.types.begin() + static_cast<ptrdiff_t>(type->value.number);
  func_->results.assign(outputs, type->value.types.end());
  if (!ReadRegion(0, &func_->body)) return false;
  const std::vector<TensorType> arguments(func_->types.begin(),
                                          func_->types.begin() + static_cast<ptrdiff_t>(func_->body.arguments));
  if (arguments != std::vector<TensorType>(type->value.types.begin(), outputs))
    return in_.Fail(type->at, "expected the types of the arguments of the region in function_type");
  func_->donated.resize(arguments.size());
  if (!TakeArgumentAttributes(Find(attributes, "arg_attrs"))) return false;
  if (const NamedAttr* const list = Find(attributes, "res_attrs")) {
    for (const AttrNode& item : list->value.items) {
      if (!CheckResultAttributes(item.fields)) return false;
    }
  }
  if (!in_.Expect(")")) return false;
  if (in_.Try("{") && !ReadEntries(&in_, 0, "}", &attributes)) return false;
  return ReadNoTypes() && CheckFunc(attributes);
}

bool Parser::TakeArgumentAttributes(const NamedAttr* list) {
  if (list == nullptr) return true;
  if (list->value.form != Form::kList || list->value.items.size() != func_->donated.size())
    return in_.Fail(list->at, "expected attributes for each argument");
  for (size_t i = 0; i < func_->donated.size(); ++i) {
    const AttrNode& item = list->value.items[i];
    if (item.form != Form::kFields) return in_.Fail(item.at, "expected attributes of an argument");
    if (!TakeDonation(i, item.fields)) return false;
  }
  return true;
}

bool Parser::TakeDonation(size_t argument, const std::vector<NamedAttr>& attributes) {
  for (const NamedAttr& attribute : attributes) {
    const AttrNode& value = attribute.value;
    if (attribute.key == "jax.buffer_donor") {
      if (value.form != Form::kBool) return in_.Fail(value.at, "expected true or false as jax.buffer_donor");
      func_->donated[argument] = func_->donated[argument] || value.number == 1;
    } else if (attribute.key == "tf.aliasing_output") {
      if (value.form != Form::kNumber) return in_.Fail(value.at, "expected a number as tf.aliasing_output");
      func_->donated[argument] = true;
    } else if (!IsIgnored(attribute.key)) {
      return in_.Fail(attribute.at,
                      RefusedAttribute("arguments", attribute.key, "jax.buffer_donor, tf.aliasing_output"));
    }
  }
  return true;
}

bool Parser::CheckResultAttributes(const std::vector<NamedAttr>& attributes) {
  for (const NamedAttr& attribute : attributes) {
    if (!IsIgnored(attribute.key)) return in_.Fail(attribute.at, RefusedAttribute("results", attribute.key, ""));
  }
  return true;
}

// Checks what has been read of a function: its name, its results, and the names of its attributes.
bool Parser::CheckFunc(const std::vector<NamedAttr>& attributes) {
  for (const NamedAttr& attribute : attributes) {
    const std::string_view key = attribute.key;
    const bool is_own = key == "sym_name" || key == "sym_visibility" || key == "function_type" || key == "arg_attrs" ||
                        key == "res_attrs";
    if (!is_own && !IsIgnored(key)) return in_.Fail(attribute.at, RefusedAttribute("func.func", key, ""));
  }
  if (!symbols_.insert(func_->name).second)
    return in_.Fail(func_->at, "expected a name that is new, found " + Quote(func_->name));
  const std::vector<ValueId>& results = func_->body.results;
  bool agree = results.size() == func_->results.size();
  for (size_t i = 0; agree && i < results.size(); ++i) agree = func_->types[results[i]] == func_->results[i];
  return agree || in_.Fail(func_->at, "expected a function that returns the types that it declares, but " +
                                          Quote(func_->name) + " returns others");
}

}  // namespace axccl::program::stablehlo
