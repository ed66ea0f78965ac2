#include "tools/softgpu/cuda/module.h"

#include <cstring>
#include <set>
#include <string_view>

#include "tools/softgpu/cuda/fatbin.h"
#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {

CUresult ChooseImage(const void* data, std::string* text, int* arch) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ImageResult result = ReadImage(data, Knobs().arch);
  if (result.error != ImageError::kNone) {
    Explain("%s", result.explanation.c_str());
    return result.error == ImageError::kNoPtx ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
  }
  *text = std::move(result.image.text);
  *arch = result.image.arch != 0 ? result.image.arch : Knobs().arch;
  return CUDA_SUCCESS;
}

Module::Module(ContextPtr context, std::unique_ptr<engine::Module> code, int arch)
    : context_(std::move(context)), code_(std::move(code)), arch_(arch) {}

Module::~Module() {
  for (const auto& [name, address] : variables_) AddressSpace::Get().Erase(address, RangeKind::kVariable);
}

CUresult Module::Load(const ContextPtr& context, const std::string& text, int arch, ModulePtr* module) {
  std::string error;
  std::unique_ptr<engine::Module> code = engine::Module::Load(text, &error);
  if (code == nullptr) {
    // The cause may be a limit of this program rather than a fault of the user's, so it is always printed.
    Report("the PTX cannot be loaded: %s", error.c_str());
    return CUDA_ERROR_INVALID_PTX;
  }
  module->reset(new Module(context, std::move(code), arch));
  return CUDA_SUCCESS;
}

FunctionPtr Module::FindFunction(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (const auto known = functions_.find(name); known != functions_.end()) return known->second;
  const engine::Kernel* kernel = code_->FindKernel(name);
  if (kernel == nullptr) return nullptr;
  auto function = std::make_shared<Function>();
  function->module = shared_from_this();
  function->kernel = kernel;
  function->max_dynamic_shared = std::max((48 << 10) - static_cast<int>(function->info().shared_bytes), 0);
  HandlesOf<Function>().Add(function);
  return functions_[name] = function;
}

bool Module::FindVariable(const std::string& name, uint64_t* address, size_t* bytes) {
  void* at = nullptr;
  if (!code_->FindVariable(name, &at, bytes)) return false;
  *address = reinterpret_cast<uint64_t>(at);
  std::lock_guard lock(mutex_);
  if (!variables_.emplace(name, *address).second) return true;
  Range range;
  range.begin = *address;
  range.bytes = *bytes;
  range.kind = RangeKind::kVariable;
  range.device = context_->device().ordinal;
  range.context = context_->handle();
  AddressSpace::Get().Insert(std::move(range));
  return true;
}

// Functions keep their module alive, so it would never end while it keeps them.
void Module::ForgetFunctions() {
  std::lock_guard lock(mutex_);
  for (const auto& [name, function] : functions_) HandlesOf<Function>().Remove(function.get());
  functions_.clear();
}

void Retire(const ModulePtr& module) {
  HandlesOf<Module>().Remove(module.get());
  module->ForgetFunctions();
}

CUresult Library::ModuleIn(const ContextPtr& context, ModulePtr* module) {
  std::lock_guard lock(mutex_);
  ModulePtr& own = modules_[context->id()];
  if (own == nullptr) {
    if (const CUresult error = Module::Load(context, text_, arch_, &own); error != CUDA_SUCCESS) return error;
    HandlesOf<Module>().Add(own);
  }
  *module = own;
  return CUDA_SUCCESS;
}

namespace {
constexpr std::string_view kEntry = ".entry";
constexpr const char* kEndsOfNames = "( \t\r\n{";  // the parameters or the body begin there
}  // namespace

bool Library::Defines(const std::string& name) const {
  for (size_t at = text_.find(kEntry); at != std::string::npos; at = text_.find(kEntry, at)) {
    at = text_.find_first_not_of(" \t\r\n", at + kEntry.size());
    if (at == std::string::npos) return false;
    const size_t end = at + name.size();
    if (text_.compare(at, name.size(), name) == 0 && end < text_.size() && std::strchr(kEndsOfNames, text_[end]))
      return true;
  }
  return false;
}

size_t Library::CountKernels() const {
  std::set<std::string_view> names;  // an entry may be declared before it is defined
  const std::string_view text = text_;
  for (size_t at = text.find(kEntry); at != text.npos; at = text.find(kEntry, at)) {
    at = text.find_first_not_of(" \t\r\n", at + kEntry.size());
    if (at == text.npos) break;
    names.insert(text.substr(at, text.find_first_of(kEndsOfNames, at) - at));
  }
  return names.size();
}

std::shared_ptr<LibraryKernel> Library::FindKernel(const std::string& name) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<LibraryKernel>& kernel = kernels_[name];
  if (kernel == nullptr) {
    kernel = std::make_shared<LibraryKernel>(LibraryKernel{shared_from_this(), name});
    HandlesOf<LibraryKernel>().Add(kernel);
  }
  return kernel;
}

void Library::Drop(const ContextPtr& context) {
  std::lock_guard lock(mutex_);
  const auto found = modules_.find(context->id());
  if (found == modules_.end()) return;
  if (found->second != nullptr) Retire(found->second);
  modules_.erase(found);
}

void Library::Unload() {
  std::lock_guard lock(mutex_);
  for (const auto& [context, module] : modules_) {
    if (module != nullptr) Retire(module);
  }
  for (const auto& [name, kernel] : kernels_) HandlesOf<LibraryKernel>().Remove(kernel.get());
  modules_.clear();
  kernels_.clear();
}

CUresult ResolveFunction(CUfunction handle, const ContextPtr& context, FunctionPtr* function) {
  *function = HandlesOf<Function>().Find(handle);
  if (*function != nullptr) return CUDA_SUCCESS;
  const std::shared_ptr<LibraryKernel> kernel = HandlesOf<LibraryKernel>().Find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  ModulePtr module;
  if (const CUresult error = kernel->library->ModuleIn(context, &module); error != CUDA_SUCCESS) return error;
  *function = module->FindFunction(kernel->name);
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

void DropModules(const ContextPtr& context) {
  for (const std::shared_ptr<Library>& library : HandlesOf<Library>().All()) library->Drop(context);
  for (const ModulePtr& module : HandlesOf<Module>().All()) {
    if (module->context() == context) Retire(module);
  }
}

}  // namespace softgpu::cuda
