#include "tools/axccl-info/gpus.h"

#include <dlfcn.h>

#include <cstdio>

#include "src/base/format.h"

namespace axccl_info {
namespace {

// As <cuda.h> declares them, which is not needed to build this program.
constexpr int kNoDevice = 100, kStub = 34;  // CUDA_ERROR_NO_DEVICE, CUDA_ERROR_STUB_LIBRARY
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;

struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*count)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*address)(char*, int, int) = nullptr;
  int (*bytes)(size_t*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
};

template <class Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool Load(Driver* driver) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr && Find(library, "cuInit", &driver->init) &&
         Find(library, "cuGetErrorName", &driver->error_name) && Find(library, "cuDeviceGetCount", &driver->count) &&
         Find(library, "cuDeviceGet", &driver->device) && Find(library, "cuDeviceGetName", &driver->name) &&
         Find(library, "cuDeviceGetPCIBusId", &driver->address) &&
         Find(library, "cuDeviceTotalMem_v2", &driver->bytes) &&
         Find(library, "cuDeviceGetAttribute", &driver->attribute);
}

std::string ErrorText(const Driver& driver, const char* call, int result) {
  const char* name = nullptr;
  driver.error_name(result, &name);
  return axccl::Format("%s: %s (%d)", call, name == nullptr ? "unknown error" : name, result);
}

std::string Lower(const char* text) {
  std::string lower;
  for (; *text != '\0'; ++text) lower += static_cast<char>(*text >= 'A' && *text <= 'Z' ? *text - 'A' + 'a' : *text);
  return lower;
}

int Ask(const Driver& driver, int index, GpuInfo* gpu) {
  int device = 0;
  char name[256] = "", address[32] = "";
  size_t bytes = 0;
  int result = driver.device(&device, index);
  if (result == 0) result = driver.name(name, sizeof(name) - 1, device);
  if (result == 0) result = driver.address(address, sizeof(address) - 1, device);
  if (result == 0) result = driver.bytes(&bytes, device);
  if (result == 0) result = driver.attribute(&gpu->major, kCapabilityMajor, device);
  if (result == 0) result = driver.attribute(&gpu->minor, kCapabilityMinor, device);
  gpu->name = name;
  gpu->address = Lower(address);
  gpu->bytes = bytes;
  return result;
}

}  // namespace

Gpus FindGpus() {
  Gpus gpus;
  Driver driver;
  if (!Load(&driver)) return gpus;
  int count = 0, result = driver.init(0);
  const char* call = "cuInit";
  if (result == 0) result = driver.count(&count), call = "cuDeviceGetCount";
  for (int i = 0; result == 0 && i < count; ++i) {
    GpuInfo gpu;
    result = Ask(driver, i, &gpu), call = "asking a GPU";
    if (result == 0) gpus.all.push_back(std::move(gpu));
  }
  if (result != 0 && result != kNoDevice && result != kStub) gpus.error = ErrorText(driver, call, result);
  return gpus;
}

void PrintGpus(const Gpus& gpus) {
  for (size_t i = 0; i < gpus.all.size(); ++i) {
    const GpuInfo& gpu = gpus.all[i];
    printf("GPU %-6zu %s, %.1f GiB, compute capability %d.%d, PCI %s\n", i, gpu.name.c_str(),
           static_cast<double>(gpu.bytes) / (1 << 30), gpu.major, gpu.minor, gpu.address.c_str());
  }
  if (!gpus.error.empty()) printf("GPUs       the CUDA driver does not answer: %s\n", gpus.error.c_str());
}

void WriteGpus(const Gpus& gpus, axccl::JsonWriter* json) {
  json->Key("gpus").BeginList();
  for (const GpuInfo& gpu : gpus.all) {
    json->BeginObject();
    json->Key("name").String(gpu.name);
    json->Key("address").String(gpu.address);
    json->Key("bytes").Int(static_cast<int64_t>(gpu.bytes));
    json->Key("compute_capability").String(axccl::Format("%d.%d", gpu.major, gpu.minor));
    json->EndObject();
  }
  json->EndList();
}

}  // namespace axccl_info
