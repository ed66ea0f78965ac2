#include "tests/harness/gpu_driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace axccl::harness {
namespace {

thread_local int g_entered = -1;  // device

const GpuDriver* Load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    ADD_FAILURE() << "AXCCL_TEST_DEVICE=cuda: " << dlerror();
    return nullptr;
  }
  static GpuDriver driver;
  bool good = true;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
    EXPECT_NE(*function, nullptr) << "the CUDA driver has no " << name;
    good = good && *function != nullptr;
  };
  find(&driver.init, "cuInit");
  find(&driver.count_devices, "cuDeviceGetCount");
  find(&driver.get_device, "cuDeviceGet");
  find(&driver.retain_context, "cuDevicePrimaryCtxRetain");
  find(&driver.set_context, "cuCtxSetCurrent");
  find(&driver.allocate, "cuMemAlloc_v2");
  find(&driver.allocate_managed, "cuMemAllocManaged");
  find(&driver.allocate_host, "cuMemHostAlloc");
  find(&driver.free_memory, "cuMemFree_v2");
  find(&driver.memory_info, "cuMemGetInfo_v2");
  find(&driver.create_stream, "cuStreamCreate");
  find(&driver.synchronize, "cuStreamSynchronize");
  find(&driver.query_stream, "cuStreamQuery");
  find(&driver.destroy_stream, "cuStreamDestroy_v2");
  find(&driver.stream_wait_event, "cuStreamWaitEvent");
  find(&driver.call_host, "cuLaunchHostFunc");
  find(&driver.copy_to_host, "cuMemcpyDtoH_v2");
  find(&driver.copy_to_device, "cuMemcpyHtoD_v2");
  find(&driver.fill, "cuMemsetD32Async");
  find(&driver.create_event, "cuEventCreate");
  find(&driver.record_event, "cuEventRecord");
  find(&driver.query_event, "cuEventQuery");
  find(&driver.destroy_event, "cuEventDestroy_v2");
  find(&driver.begin_capture, "cuStreamBeginCapture_v2");
  find(&driver.end_capture, "cuStreamEndCapture");
  find(&driver.instantiate, "cuGraphInstantiateWithFlags");
  find(&driver.launch_graph, "cuGraphLaunch");
  find(&driver.destroy_graph, "cuGraphDestroy");
  find(&driver.destroy_executable, "cuGraphExecDestroy");
  find(&driver.load_module, "cuModuleLoadData");
  find(&driver.get_function, "cuModuleGetFunction");
  find(&driver.launch, "cuLaunchKernel");
  return good && driver.init(0) == 0 ? &driver : nullptr;
}

}  // namespace

const GpuDriver* GpuDriver::Get() {
  static const GpuDriver* const driver = Load();
  return driver;
}

const GpuDriver* EnterGpu() { return EnterGpu(g_entered < 0 ? 0 : g_entered); }

const GpuDriver* EnterGpu(int ordinal) {
  const GpuDriver* const driver = GpuDriver::Get();
  if (driver == nullptr || g_entered == ordinal) return driver;
  int device = 0, devices = 0;
  void* context = nullptr;
  const bool good = driver->count_devices(&devices) == 0 && devices > 0 &&
                    driver->get_device(&device, ordinal % devices) == 0 &&
                    driver->retain_context(&context, device) == 0 && driver->set_context(context) == 0;
  EXPECT_TRUE(good) << "no context on GPU " << ordinal;
  if (good) g_entered = ordinal;
  return good ? driver : nullptr;
}

}  // namespace axccl::harness
