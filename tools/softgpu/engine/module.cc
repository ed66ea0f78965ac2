// Loaded modules with their variables and kernels, and the start of executions, which connects all parts.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "tools/softgpu/engine/decoder.h"
#include "tools/softgpu/engine/engine.h"
#include "tools/softgpu/engine/execution.h"
#include "tools/softgpu/engine/ptx_ir.h"

namespace softgpu::engine {

class LoadedModule;

// Laid out at the first request, because modules contain many kernels that are never run.
class Kernel {
 public:
  Kernel(const LoadedModule& module, const FunctionIr& function) : module_(module), function_(function) {}

  const KernelInfo& info() const {
    Prepare();
    return info_;
  }
  // Returns null and sets `error` if the code contains something that is not understood.
  const Program* program(std::string* error) const {
    Prepare();
    *error = error_;
    return error_.empty() ? &program_ : nullptr;
  }
  const LoadedModule& module() const { return module_; }

 private:
  void Prepare() const;

  const LoadedModule& module_;
  const FunctionIr& function_;
  mutable std::once_flag once_;
  mutable Program program_;
  mutable KernelInfo info_;
  mutable std::string error_;
};

namespace {

// The memory of all variables of a space.
class Arena {
 public:
  static constexpr uint64_t kAlignment = 256;

  uint64_t Reserve(uint64_t bytes, uint64_t alignment) {
    size_ = (size_ + alignment - 1) / alignment * alignment;
    const uint64_t at = size_;
    size_ += bytes;
    return at;
  }
  void Allocate() {
    storage_.reset(new (std::align_val_t(kAlignment)) std::byte[size_ + 1]);
    std::memset(storage_.get(), 0, size_ + 1);
  }
  std::byte* begin() const { return storage_.get(); }
  uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t(kAlignment)); }
  };
  uint64_t size_ = 0;
  std::unique_ptr<std::byte[], Free> storage_;
};

}  // namespace

class LoadedModule : public Module, public SymbolAddresses {
 public:
  explicit LoadedModule(std::unique_ptr<ModuleIr> ir) : ir_(std::move(ir)) {}

  bool Initialise(std::string* error);

  const Kernel* FindKernel(std::string_view name) const override {
    const auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : found->second.get();
  }
  bool FindVariable(std::string_view name, void** address, size_t* bytes) const override;
  std::vector<std::string> KernelNames() const override;
  uint64_t AddressOf(const VariableIr& variable) const override {
    const auto found = addresses_.find(&variable);
    return found == addresses_.end() ? 0 : found->second;
  }
  const ModuleIr& ir() const { return *ir_; }
  const Arena& global() const { return global_; }
  const Arena& constant() const { return constant_; }

 private:
  bool WriteInitialisers(const VariableIr& variable, std::string* error);

  const std::unique_ptr<ModuleIr> ir_;
  Arena global_, constant_;
  std::map<const VariableIr*, uint64_t> addresses_;
  std::map<std::string, std::unique_ptr<Kernel>, std::less<>> kernels_;
};

void Kernel::Prepare() const {
  std::call_once(once_, [this] {
    program_.decoder = std::make_shared<Decoder>(module_.ir(), module_, &program_);
    program_.decoder->Begin(function_, &error_);
    const Arena& constant = module_.constant();
    program_.const_begin = reinterpret_cast<uintptr_t>(constant.begin());
    program_.const_end = program_.const_begin + constant.size();
    info_.name = function_.name;
    uint32_t offset = 0;
    for (const OperandIr& parameter : function_.parameters) {
      const uint32_t align = std::max(parameter.variable->align, 1u);
      offset = (offset + align - 1) / align * align;
      info_.parameters.push_back({offset, static_cast<uint32_t>(parameter.variable->bytes)});
      offset += static_cast<uint32_t>(parameter.variable->bytes);
    }
    info_.parameter_bytes = offset;
    info_.shared_bytes = program_.shared_bytes;
    info_.local_bytes = program_.local_bytes;
    info_.max_threads = std::min(function_.max_threads, 1024u);
    info_.registers = program_.values / kWarpLanes + program_.predicates;
  });
}

bool LoadedModule::WriteInitialisers(const VariableIr& variable, std::string* error) {
  std::byte* const to = reinterpret_cast<std::byte*>(addresses_.at(&variable));
  std::copy(variable.data.begin(), variable.data.end(), to);
  for (const AddressInitialiser& initialiser : variable.addresses) {
    uint64_t value = 0;
    if (const auto other = ir_->variable_named.find(initialiser.symbol); other != ir_->variable_named.end()) {
      value = AddressOf(*other->second);
    } else if (const auto function = ir_->function_named.find(initialiser.symbol);
               function != ir_->function_named.end()) {
      value = reinterpret_cast<uintptr_t>(function->second);
    } else {
      *error = "variable '" + variable.name + "' is initialised with the address of '" +
               std::string(initialiser.symbol) + "', which is not there";
      return false;
    }
    value += static_cast<uint64_t>(initialiser.addend);
    if (initialiser.mask != ~0ull && initialiser.mask != 0)
      value = (value & initialiser.mask) >> std::countr_zero(initialiser.mask);
    std::memcpy(to + initialiser.offset, &value, std::min<size_t>(initialiser.bytes, sizeof value));
  }
  return true;
}

bool LoadedModule::Initialise(std::string* error) {
  const auto place = [this](const VariableIr& variable) -> Arena* {
    if (variable.space == Space::kGlobal) return &global_;
    return variable.space == Space::kConst ? &constant_ : nullptr;
  };
  for (const auto& variable : ir_->variables) {
    if (Arena* const arena = place(*variable))
      addresses_[variable.get()] = arena->Reserve(variable->bytes, std::max(variable->align, 1u));
  }
  global_.Allocate();
  constant_.Allocate();
  for (auto& [variable, address] : addresses_) address += reinterpret_cast<uintptr_t>(place(*variable)->begin());
  for (const auto& [variable, address] : addresses_) {
    if (!WriteInitialisers(*variable, error)) return false;
  }
  for (const auto& function : ir_->functions) {
    if (function->is_entry && function->has_body) kernels_[function->name] = std::make_unique<Kernel>(*this, *function);
  }
  return true;
}

bool LoadedModule::FindVariable(std::string_view name, void** address, size_t* bytes) const {
  const auto found = ir_->variable_named.find(name);
  if (found == ir_->variable_named.end() || !addresses_.contains(found->second)) return false;
  *address = reinterpret_cast<void*>(AddressOf(*found->second));
  *bytes = found->second->bytes;
  return true;
}

std::vector<std::string> LoadedModule::KernelNames() const {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : kernels_) names.push_back(name);
  return names;
}

std::unique_ptr<Module> Module::Load(std::string_view ptx, std::string* error) {
  std::unique_ptr<ModuleIr> ir = ParsePtx(ptx, error);
  if (ir == nullptr) return nullptr;
  auto module = std::make_unique<LoadedModule>(std::move(ir));
  if (!module->Initialise(error)) return nullptr;
  return module;
}

const KernelInfo& Info(const Kernel& kernel) { return kernel.info(); }

std::string DecodeAll(const Kernel& kernel) {
  std::string error;
  const Program* const program = kernel.program(&error);
  for (size_t i = 0; error.empty() && i < program->procedures.size(); ++i)
    (void)program->Ready(static_cast<int32_t>(i), &error);
  return error;
}

std::unique_ptr<Execution> Execution::Start(LaunchConfig config, const Options& options, const AddressMap* map,
                                            std::string* error) {
  const auto fail = [&](const std::string& what) {
    *error = what;
    return nullptr;
  };
  if (config.kernel == nullptr) return fail("Execution::Start: no kernel");
  const Program* const program = config.kernel->program(error);
  if (program == nullptr) {
    *error = "kernel '" + config.kernel->info().name + "' cannot run: " + *error;
    return nullptr;
  }
  const KernelInfo& info = config.kernel->info();
  const uint64_t threads = uint64_t{config.block.x} * config.block.y * config.block.z;
  if (threads == 0 || threads > info.max_threads)
    return fail("kernel '" + info.name + "': blocks of " + std::to_string(threads) + " threads, but 1 to " +
                std::to_string(info.max_threads) + " are possible");
  if (uint64_t{config.grid.x} * config.grid.y * config.grid.z == 0)
    return fail("kernel '" + info.name + "': an empty grid");
  if (config.parameters.size() < info.parameter_bytes)
    return fail("kernel '" + info.name + "': " + std::to_string(config.parameters.size()) +
                " bytes of parameters, but " + std::to_string(info.parameter_bytes) + " are needed");
  const auto range = [](const std::byte* begin, uint64_t bytes) {
    const uint64_t at = reinterpret_cast<uintptr_t>(begin);
    return AddressRange{at, at + bytes};
  };
  const LoadedModule& module = config.kernel->module();
  std::vector<AddressRange> own = {range(module.global().begin(), module.global().size()),
                                   range(module.constant().begin(), module.constant().size()),
                                   range(config.parameters.data(), config.parameters.size())};
  return std::make_unique<ExecutionState>(std::move(config), options, map, program, std::move(own));
}

}  // namespace softgpu::engine
