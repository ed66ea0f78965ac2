#include "src/device/cuda/driver.h"

#include <dlfcn.h>

#include <type_traits>

namespace axccl::device::cuda {
namespace {

Driver g_driver;

// Loads the functions in the version that their types in Driver are of.
Status Load(Driver* driver) {
  constexpr const char* kLibrary = "libcuda.so.1";
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return MakeStatus(Code::kInvalidUsage, "no CUDA driver: %s; install NVIDIA's driver, or set AXCCL_DEVICE=host",
                      dlerror());
  using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto find = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  const auto get_version = reinterpret_cast<CUresult (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  // Check the version first: an error about the driver's age is more helpful than one about a missing function.
  if (get_version == nullptr || get_version(&version) != CUDA_SUCCESS || version < kOldestDriver || find == nullptr)
    return MakeStatus(Code::kInvalidUsage,
                      "the CUDA driver is of CUDA %d.%d, at least %d.%d is needed, as the library was built with CUDA "
                      "%d.%d; update it, build with an older toolkit, or set AXCCL_DEVICE=host",
                      version / 1000, version % 1000 / 10, kOldestDriver / 1000, kOldestDriver % 1000 / 10,
                      CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
  driver->version = version;
  void* function = nullptr;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
#define AXCCL_CUDA_TEXT_(name) #name
#define AXCCL_CUDA_FIND(name)                                                                                       \
  if (find(BaseName(AXCCL_CUDA_TEXT_(name)).c_str(), &function, kInterface, CU_GET_PROC_ADDRESS_DEFAULT, &found) != \
          CUDA_SUCCESS ||                                                                                           \
      function == nullptr)                                                                                          \
    return MakeStatus(Code::kInvalidUsage, "the CUDA driver lacks %s; update it, or set AXCCL_DEVICE=host",         \
                      AXCCL_CUDA_TEXT_(name));                                                                      \
  driver->name = reinterpret_cast<decltype(driver->name)>(function);
  // The header's macros have appended version suffixes to some of the names.
  auto BaseName = [](std::string name) {
    const size_t suffix = name.rfind("_v");
    return suffix == std::string::npos ? name : name.substr(0, suffix);
  };
  AXCCL_CUDA_FUNCTIONS(AXCCL_CUDA_FIND)
  AXCCL_CUDA_FIND(cuStreamGetCtx)
  AXCCL_CUDA_FIND(cuStreamGetCaptureInfo)
#undef AXCCL_CUDA_FIND
#undef AXCCL_CUDA_TEXT_
  if (const CUresult result = driver->cuInit(0); result != CUDA_SUCCESS) {
    const char* text = nullptr;
    driver->cuGetErrorString(result, &text);
    return MakeStatus(Code::kUnhandledCudaError,
                      "the CUDA driver does not start: %s (cuInit: %d); set AXCCL_DEVICE=host to do "
                      "without",
                      text != nullptr ? text : "unknown error", static_cast<int>(result));
  }
  return Status();
}

}  // namespace

Result<const Driver*> Driver::Get() {
  static const Status* const status = new Status(Load(&g_driver));
  if (!status->ok()) return *status;
  return &g_driver;
}

const Driver& Driver::Loaded() { return g_driver; }

namespace {

bool LoadMulticast(MulticastDriver* driver) {
  constexpr int kVersion = 12010;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto find =
      reinterpret_cast<GetProcAddress>(library == nullptr ? nullptr : dlsym(library, "cuGetProcAddress_v2"));
  if (find == nullptr) return false;
  const auto load = [&](const char* name, auto* function) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult how = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result = find(name, &found, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, &how);
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
    return result == CUDA_SUCCESS && found != nullptr;
  };
  return load("cuMulticastCreate", &driver->cuMulticastCreate) &&
         load("cuMulticastAddDevice", &driver->cuMulticastAddDevice) &&
         load("cuMulticastBindMem", &driver->cuMulticastBindMem) &&
         load("cuMulticastUnbind", &driver->cuMulticastUnbind) &&
         load("cuMulticastGetGranularity", &driver->cuMulticastGetGranularity);
}

}  // namespace

const MulticastDriver* MulticastDriver::Get() {
  static MulticastDriver driver;
  static const bool loaded = LoadMulticast(&driver);
  return loaded ? &driver : nullptr;
}

namespace {

// Whether the result is one that every call returns once a kernel of the process has failed.
bool IsOfKernel(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

}  // namespace

Status Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return Status();
  const Driver& driver = Driver::Loaded();
  const char *name = nullptr, *text = nullptr;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &text);
  // Keeps the expression up to its arguments, without the object that it is called on.
  const std::string expression = call;
  const size_t begin = expression.find("cu", expression.find_first_of(".>") + 1);
  const std::string function = expression.substr(begin, expression.find('(', begin) - begin);
  return MakeStatus(Code::kUnhandledCudaError, "%s failed: %s (%s)%s", function.c_str(),
                    text != nullptr ? text : "unknown error", name != nullptr ? name : std::to_string(result).c_str(),
                    IsOfKernel(result)
                        ? "; a kernel, of this library or the application, went wrong: look for memory that "
                          "was freed while it was in use"
                        : "");
}

}  // namespace axccl::device::cuda
