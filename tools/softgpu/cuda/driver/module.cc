// cuModule*, cuLibrary*, cuKernel*, cuFunc*: code and its properties.
#include "tools/softgpu/cuda/module.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

namespace {

CUfunction HandleOf(const FunctionPtr& function) { return reinterpret_cast<CUfunction>(function.get()); }

template <typename Use>
CUresult WithModule(CUmodule handle, const Use& use) {
  return WithContext([&](const ContextPtr&) {
    const ModulePtr module = HandlesOf<Module>().Find(handle);
    return module == nullptr ? CUDA_ERROR_INVALID_HANDLE : use(module);
  });
}

template <typename Use>
CUresult WithLibrary(CUlibrary handle, const Use& use) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const std::shared_ptr<Library> library = HandlesOf<Library>().Find(handle);
  return library == nullptr ? CUDA_ERROR_INVALID_HANDLE : use(library);
}

template <typename Use>
CUresult WithFunction(CUfunction handle, const Use& use) {
  return WithContext([&](const ContextPtr& context) {
    FunctionPtr function;
    const CUresult error = ResolveFunction(handle, context, &function);
    return error != CUDA_SUCCESS ? error : use(function);
  });
}

bool ReadWholeFile(const char* path, std::string* content) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  content->assign(std::istreambuf_iterator<char>(file), {});
  return true;
}

CUresult ParameterInfo(const Function& function, size_t index, size_t* offset, size_t* bytes) {
  const std::vector<softgpu::engine::Parameter>& parameters = function.info().parameters;
  if (index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset;
  if (bytes != nullptr) *bytes = parameters[index].bytes;
  return CUDA_SUCCESS;
}

CUresult GetAttribute(const Function& function, CUfunction_attribute attribute, int* value) {
  const softgpu::engine::KernelInfo& info = function.info();
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(info.max_threads);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info.shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(info.local_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      // Virtual registers; no processor has more than 255.
      *value = static_cast<int>(std::min(info.registers, 255u));
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = function.module->arch();
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function.max_dynamic_shared;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = function.shared_carveout;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return attribute < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SetAttribute(Function* function, CUfunction_attribute attribute, int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    function->shared_carveout = value;
    return CUDA_SUCCESS;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) return CUDA_SUCCESS;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
  int most = 0;
  DeviceAttribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, function->module->context()->device().ordinal,
                  &most);
  if (value < 0 || value + static_cast<int>(function->info().shared_bytes) > most) {
    Explain("kernel %s: %d bytes of dynamic and %u of static shared memory, a block can have %d",
            function->info().name.c_str(), value, function->info().shared_bytes, most);
    return CUDA_ERROR_INVALID_VALUE;
  }
  function->max_dynamic_shared = value;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  return WithContext([&](const ContextPtr& context) {
    std::string text;
    int arch = 0;
    if (const CUresult error = ChooseImage(image, &text, &arch); error != CUDA_SUCCESS) return error;
    SynchronizeFor(kSyncModule);
    ModulePtr module;
    if (const CUresult error = Module::Load(context, text, arch, &module); error != CUDA_SUCCESS) return error;
    *handle = reinterpret_cast<CUmodule>(HandlesOf<Module>().Add(module));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(handle, image);
}
CUresult cuModuleLoadFatBinary(CUmodule* handle, const void* image) { return cuModuleLoadData(handle, image); }

CUresult cuModuleLoad(CUmodule* handle, const char* path) {
  std::string image;
  return ReadWholeFile(path, &image) ? cuModuleLoadData(handle, image.c_str()) : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuModuleUnload(CUmodule handle) {
  return WithModule(handle, [](const ModulePtr& module) {
    SynchronizeFor(kSyncModule);
    SynchronizeContext(module->context());
    Retire(module);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = CU_MODULE_LAZY_LOADING;
  return Ready();
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module, const char* name) {
  return WithModule(module, [&](const ModulePtr& found) {
    const FunctionPtr function = found->FindFunction(name);
    if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
    *handle = HandleOf(function);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return WithModule(module, [&](const ModulePtr& found) {
    *count = static_cast<unsigned>(found->FunctionNames().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* handles, unsigned count, CUmodule module) {
  return WithModule(module, [&](const ModulePtr& found) {
    const std::vector<std::string> names = found->FunctionNames();
    for (size_t i = 0; i < std::min<size_t>(count, names.size()); ++i)
      handles[i] = HandleOf(found->FindFunction(names[i]));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  return WithModule(module, [&](const ModulePtr& found) {
    uint64_t at = 0;
    size_t size = 0;
    if (!found->FindVariable(name, &at, &size)) return CUDA_ERROR_NOT_FOUND;
    if (address != nullptr) *address = at;
    if (bytes != nullptr) *bytes = size;
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryLoadData(CUlibrary* handle, const void* image, CUjit_option*, void**, unsigned, CUlibraryOption*,
                           void**, unsigned) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  std::string text;
  int arch = 0;
  if (const CUresult error = ChooseImage(image, &text, &arch); error != CUDA_SUCCESS) return error;
  *handle = reinterpret_cast<CUlibrary>(HandlesOf<Library>().Add(std::make_shared<Library>(std::move(text), arch)));
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary* handle, const char* path, CUjit_option*, void**, unsigned, CUlibraryOption*,
                               void**, unsigned) {
  std::string image;
  if (!ReadWholeFile(path, &image)) return CUDA_ERROR_FILE_NOT_FOUND;
  return cuLibraryLoadData(handle, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  return WithLibrary(handle, [&](const std::shared_ptr<Library>& library) {
    HandlesOf<Library>().Remove(handle);
    library->Unload();
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  return WithLibrary(handle, [&](const std::shared_ptr<Library>& library) {
    if (!library->Defines(name)) return CUDA_ERROR_NOT_FOUND;
    *kernel = reinterpret_cast<CUkernel>(library->FindKernel(name).get());
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  return WithLibrary(handle, [&](const std::shared_ptr<Library>& library) {
    *count = static_cast<unsigned>(library->CountKernels());
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetModule(CUmodule* handle, CUlibrary library) {
  return WithContext([&](const ContextPtr& context) {
    return WithLibrary(library, [&](const std::shared_ptr<Library>& found) {
      ModulePtr module;
      const CUresult error = found->ModuleIn(context, &module);
      *handle = reinterpret_cast<CUmodule>(module.get());
      return error;
    });
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  CUmodule module = nullptr;
  const CUresult error = cuLibraryGetModule(&module, library);
  return error != CUDA_SUCCESS ? error : cuModuleGetGlobal(address, bytes, module, name);
}

// No code has managed variables or functions that the host can call.
CUresult cuLibraryGetManaged(CUdeviceptr*, size_t*, CUlibrary handle, const char*) {
  return WithLibrary(handle, [](const std::shared_ptr<Library>&) { return CUDA_ERROR_NOT_FOUND; });
}
CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary handle, const char*) {
  return WithLibrary(handle, [](const std::shared_ptr<Library>&) { return CUDA_ERROR_NOT_FOUND; });
}

CUresult cuKernelGetFunction(CUfunction* handle, CUkernel kernel) {
  return WithFunction(reinterpret_cast<CUfunction>(kernel), [&](const FunctionPtr& function) {
    *handle = HandleOf(function);
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
  const std::shared_ptr<LibraryKernel> kernel = HandlesOf<LibraryKernel>().Find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *library = reinterpret_cast<CUlibrary>(kernel->library.get());
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  const std::shared_ptr<LibraryKernel> kernel = HandlesOf<LibraryKernel>().Find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
  return cuFuncGetParamInfo(reinterpret_cast<CUfunction>(kernel), index, offset, bytes);
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice) {
  return cuFuncGetAttribute(value, attribute, reinterpret_cast<CUfunction>(kernel));
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
  return cuFuncSetAttribute(reinterpret_cast<CUfunction>(kernel), attribute, value);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice) {
  return cuFuncSetCacheConfig(reinterpret_cast<CUfunction>(kernel), config);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return WithFunction(handle, [&](const FunctionPtr& function) { return GetAttribute(*function, attribute, value); });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return WithFunction(handle,
                      [&](const FunctionPtr& function) { return SetAttribute(function.get(), attribute, value); });
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  return WithFunction(handle, [](const FunctionPtr&) { return CUDA_SUCCESS; });
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  return WithFunction(handle, [&](const FunctionPtr& function) {
    *module = reinterpret_cast<CUmodule>(function->module.get());
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  return WithFunction(handle, [&](const FunctionPtr& function) {
    *name = function->info().name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  return WithFunction(handle,
                      [&](const FunctionPtr& function) { return ParameterInfo(*function, index, offset, bytes); });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return WithFunction(handle, [](const FunctionPtr&) { return CUDA_SUCCESS; });
}

CUresult cuFuncLoad(CUfunction handle) {
  return WithFunction(handle, [](const FunctionPtr&) { return CUDA_SUCCESS; });
}
