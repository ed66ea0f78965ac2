#include "tools/axccl-info/gpus.h"

#include <cstdio>

#include "src/base/cuda_driver.h"
#include "src/base/format.h"

namespace axccl_info {
namespace {

using axccl::CudaDriver;

// As <cuda.h> declares them, which is not needed to build this program.
constexpr int kNoDevice = 100, kStub = 34;  // CUDA_ERROR_NO_DEVICE, CUDA_ERROR_STUB_LIBRARY
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;

std::string ErrorText(const CudaDriver& driver, const char* call, int result) {
  const char* name = nullptr;
  driver.cuGetErrorName(result, &name);
  return axccl::Format("%s: %s (%d)", call, name == nullptr ? "unknown error" : name, result);
}

std::string Lower(const char* text) {
  std::string lower;
  for (; *text != '\0'; ++text) lower += static_cast<char>(*text >= 'A' && *text <= 'Z' ? *text - 'A' + 'a' : *text);
  return lower;
}

int Ask(const CudaDriver& driver, int index, GpuInfo* gpu) {
  int device = 0;
  char name[256] = "", address[32] = "";
  size_t bytes = 0;
  int result = driver.cuDeviceGet(&device, index);
  if (result == 0) result = driver.cuDeviceGetName(name, sizeof(name) - 1, device);
  if (result == 0) result = driver.cuDeviceGetPCIBusId(address, sizeof(address) - 1, device);
  if (result == 0) result = driver.cuDeviceTotalMem_v2(&bytes, device);
  if (result == 0) result = driver.cuDeviceGetAttribute(&gpu->major, kCapabilityMajor, device);
  if (result == 0) result = driver.cuDeviceGetAttribute(&gpu->minor, kCapabilityMinor, device);
  gpu->name = name;
  gpu->address = Lower(address);
  gpu->bytes = bytes;
  return result;
}

}  // namespace

Gpus FindGpus() {
  Gpus gpus;
  const axccl::Result<const CudaDriver*> loaded = CudaDriver::Load();
  if (!loaded.ok()) return gpus;
  const CudaDriver& driver = *loaded.value();
  int count = 0, result = driver.cuInit(0);
  const char* call = "cuInit";
  if (result == 0) result = driver.cuDeviceGetCount(&count), call = "cuDeviceGetCount";
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
