// The code that nvcc embeds in programs: registered before main, loaded at its first use.
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/softgpu/cuda/runtime/runtime.h"

namespace softgpu::runtime {
namespace {

struct FatBinary {
  const void* image = nullptr;
  CUlibrary library = nullptr;
  CUresult error = CUDA_SUCCESS;
};

// A __global__ function or __device__ variable; `name` is the one in the PTX.
struct Symbol {
  FatBinary* code;
  std::string name;
  CUkernel kernel = nullptr;
};

// Symbols by their address in the host code.
struct Registry {
  std::mutex mutex;
  std::map<const void*, Symbol> kernels, variables;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

// Under the mutex.
CUresult Load(FatBinary* code) {
  if (code->library == nullptr && code->error == CUDA_SUCCESS)
    code->error = cuLibraryLoadData(&code->library, code->image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  return code->error;
}

}  // namespace

cudaError_t FindKernel(const void* function, CUkernel* kernel) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  const auto found = registry.kernels.find(function);
  if (found == registry.kernels.end()) {
    // Not a function of the host: a handle of cudaGetKernel or cudaLibraryGetKernel, or invalid.
    *kernel = reinterpret_cast<CUkernel>(const_cast<void*>(function));
    const char* name = nullptr;
    return cuKernelGetName(&name, *kernel) == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  }
  Symbol& symbol = found->second;
  if (symbol.kernel == nullptr) {
    CUresult error = Load(symbol.code);
    if (error == CUDA_SUCCESS) error = cuLibraryGetKernel(&symbol.kernel, symbol.code->library, symbol.name.c_str());
    if (error == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
    if (error != CUDA_SUCCESS) return static_cast<cudaError_t>(error);
  }
  *kernel = symbol.kernel;
  return cudaSuccess;
}

cudaError_t FindVariable(const void* shadow, CUdeviceptr* address, size_t* bytes) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  const auto found = registry.variables.find(shadow);
  if (found == registry.variables.end()) return cudaErrorInvalidSymbol;
  FatBinary* code = found->second.code;
  if (const CUresult error = Load(code); error != CUDA_SUCCESS) return static_cast<cudaError_t>(error);
  const CUresult error = cuLibraryGetGlobal(address, bytes, code->library, found->second.name.c_str());
  return error == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : static_cast<cudaError_t>(error);
}

}  // namespace softgpu::runtime

using namespace softgpu::runtime;  // NOLINT: the C entry points

#pragma GCC visibility push(default)
extern "C" {

void** __cudaRegisterFatBinary(void* image) {
  auto* code = new FatBinary;
  code->image = image;
  return reinterpret_cast<void**>(code);
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** handle) {
  auto* code = reinterpret_cast<FatBinary*>(handle);
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  const auto of_code = [code](const auto& entry) { return entry.second.code == code; };
  std::erase_if(registry.kernels, of_code);
  std::erase_if(registry.variables, of_code);
  if (code->library != nullptr) cuLibraryUnload(code->library);
  delete code;
}

void __cudaRegisterFunction(void** handle, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  std::lock_guard lock(TheRegistry().mutex);
  TheRegistry().kernels[function] = {reinterpret_cast<FatBinary*>(handle), name};
}

void __cudaRegisterVar(void** handle, char* shadow, char*, const char* name, int, size_t, int, int) {
  std::lock_guard lock(TheRegistry().mutex);
  TheRegistry().variables[shadow] = {reinterpret_cast<FatBinary*>(handle), name};
}

char __cudaInitModule(void**) { return 0; }

// The handle that the generated code keeps is the function's own address, so that an error of loading appears at the
// launch, which is checked.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

}  // extern "C"
#pragma GCC visibility pop

cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  return Call([&] {
    size_t bytes = 0;
    return FindVariable(symbol, Out(pointer), &bytes);
  });
}

cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return Call([&] {
    CUdeviceptr address = 0;
    return FindVariable(symbol, &address, bytes);
  });
}

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return Call([&] { return FindKernel(function, reinterpret_cast<CUkernel*>(kernel)); });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* handle, const void* symbol) {
  return Call([&] {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(symbol, &kernel);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(cuKernelGetFunction(handle, kernel));
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return Call([&] {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(function, &kernel);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(cuKernelGetName(name, kernel));
  });
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* image, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  return Call([&] { return cuLibraryLoadData(library, image, nullptr, nullptr, 0, nullptr, nullptr, 0); });
}
cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* path, cudaJitOption*, void**, unsigned,
                                    cudaLibraryOption*, void**, unsigned) {
  return Call([&] { return cuLibraryLoadFromFile(library, path, nullptr, nullptr, 0, nullptr, nullptr, 0); });
}
cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  return Call([&] { return cuLibraryUnload(library); });
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  return Call([&] { return cuLibraryGetKernel(kernel, library, name); });
}
cudaError_t cudaLibraryGetGlobal(void** pointer, size_t* bytes, cudaLibrary_t library, const char* name) {
  return Call([&] { return cuLibraryGetGlobal(Out(pointer), bytes, library, name); });
}
cudaError_t cudaLibraryGetKernelCount(unsigned* count, cudaLibrary_t library) {
  return Call([&] { return cuLibraryGetKernelCount(count, library); });
}
cudaError_t cudaLibraryGetManaged(void** pointer, size_t* bytes, cudaLibrary_t library, const char* name) {
  return Call([&] { return cuLibraryGetManaged(Out(pointer), bytes, library, name); });
}
cudaError_t cudaLibraryGetUnifiedFunction(void** function, cudaLibrary_t library, const char* name) {
  return Call([&] { return cuLibraryGetUnifiedFunction(function, library, name); });
}
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int device) {
  return Call(
      [&] { return cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, kernel, device); });
}
