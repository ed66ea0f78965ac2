// PTX as parsed: variables and functions with their statements, names resolved, nothing decided about execution. Text
// views point into the text that ModuleIr owns.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/softgpu/engine/ptx_type.h"

namespace softgpu::engine {

enum class Space : uint8_t { kGeneric, kGlobal, kConst, kShared, kLocal, kParam };

constexpr uint32_t kLocalAlignment = 16;  // of a function's local memory

struct FunctionIr;
struct VariableIr;

// A place in an initialiser that contains an address.
struct AddressInitialiser {
  uint32_t offset = 0;  // within the variable
  uint32_t bytes = 8;
  std::string_view symbol;
  int64_t addend = 0;
  uint64_t mask = ~0ull;  // 0xFF(symbol): one byte of the address
};

struct VariableIr {
  std::string name;
  Space space = Space::kGlobal;
  Type type = Type::kNone;
  uint32_t align = 1;
  uint64_t bytes = 0;
  bool is_extern = false;  // dynamic shared memory
  bool is_visible = false;
  std::vector<std::byte> data;  // may be shorter than `bytes`: the rest is zero
  std::vector<AddressInitialiser> addresses;
};

struct OperandIr {
  enum Kind : uint8_t {
    kNone,
    kRegister,
    kImmediate,
    kVariable,
    kFunction,
    kSpecial,
    kAddress,
    kVector,
    kSink,
    kLabel,
    kName
  };
  enum Literal : uint8_t { kInteger, kFloat32, kFloat64 };
  Kind kind = kNone;
  Literal literal = kInteger;
  bool negated = false;     // !p
  Type type = Type::kNone;  // of a register
  uint32_t index = 0;       // of a register
  uint64_t bits = 0;        // immediate: integer, or bits of the literal
  int64_t offset = 0;       // added to a variable or an address
  const VariableIr* variable = nullptr;
  std::string_view name;              // as written: special register, label, function
  std::vector<OperandIr> parts;       // vector: elements; address: its base (none for a number)
  std::shared_ptr<OperandIr> second;  // p of d|p
};

struct StatementIr {
  int line = 0;
  std::string_view text;
  std::string_view opcode;                  // "ld"
  std::vector<std::string_view> modifiers;  // "global", "u32"
  OperandIr guard;                          // kNone or a predicate register
  std::vector<OperandIr> operands;
  // call: its results and arguments
  std::vector<OperandIr> results, arguments;
  std::vector<uint32_t> targets;  // branch: statement index; brx.idx: the list
};

struct RegisterIr {
  Type type;
};

// What a body needs, found without parsing it (ptx_survey.cc). Numbers are upper bounds.
struct BodySurvey {
  std::vector<const FunctionIr*> functions;  // that it names
  std::vector<const VariableIr*> variables;  // of the module
  uint32_t columns = 0;                      // for registers that are no predicates, and special registers
  uint32_t predicates = 0;
  uint32_t constants = 0;
  uint32_t local_bytes = 0;  // of its variables and parameters, formal ones included
  bool calls_by_address = false;
  bool reads_shared_in_bulk = false;
  bool declares_shared = false;
};

// Its body is parsed when it is needed (ParseBody): modules contain many functions that are never called.
struct FunctionIr {
  std::string name;
  bool is_entry = false;
  bool has_body = false;
  int line = 0;
  uint32_t max_threads = 1024;
  std::vector<OperandIr> results, parameters;  // formal: kVariable (param space) or kRegister
  std::string_view body;                       // with its braces
  int body_line = 0;
  std::vector<RegisterIr> registers;                   // until the body is parsed, the formal ones
  std::vector<std::unique_ptr<VariableIr>> variables;  // declared inside; until then, the formal ones
  // Once the body is parsed:
  std::vector<StatementIr> statements;
  std::string error;  // why it cannot be run
};

struct ModuleIr {
  std::string text;
  std::vector<std::unique_ptr<VariableIr>> variables;
  std::vector<std::unique_ptr<FunctionIr>> functions;
  std::map<std::string, VariableIr*, std::less<>> variable_named;
  std::map<std::string, FunctionIr*, std::less<>> function_named;
  mutable std::mutex mutex;
  mutable std::set<const FunctionIr*> parsed;  // with the mutex, as is the next one
  mutable std::map<const FunctionIr*, BodySurvey> surveys;
};

// Returns null on error, with the line in `error`. Bodies of functions are not parsed yet.
std::unique_ptr<ModuleIr> ParsePtx(std::string_view text, std::string* error);
// Parses the body of a function of the module, unless that has been done. Returns false if the function's `error` says
// why it cannot be run. Thread-safe.
bool ParseBody(const ModuleIr& module, const FunctionIr& function);
// What its body needs. Thread-safe.
const BodySurvey& SurveyBody(const ModuleIr& module, const FunctionIr& function);

}  // namespace softgpu::engine
