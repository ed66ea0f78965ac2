// cuDevice*: the devices and their capabilities; their primary contexts.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuDeviceGetCount(int* count) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = Knobs().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return WithDevice(ordinal, [&](Device*) {
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return WithDevice(device, [&](Device*) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<size_t>(length), "softgpu %d.%d", Knobs().arch / 10, Knobs().arch % 10);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return WithDevice(device, [&](Device*) {
    *uuid = DeviceUuid(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return WithDevice(device, [&](Device* found) {
    *bytes = found->memory.capacity();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return WithDevice(device, [&](Device*) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return DeviceAttribute(attribute, device, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  return WithDevice(device, [&](Device*) {
    if (id == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  const bool full = std::sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) >= 3;
  if (!full && std::sscanf(id, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  if (domain != 0 || FindDevice(static_cast<int>(bus) - 1) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = static_cast<int>(bus) - 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return WithDevice(device, [&](Device*) {
    if (FindDevice(peer) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && Knobs().peer_access ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
  return WithDevice(device, [&](Device*) {
    if (FindDevice(peer) == nullptr || device == peer) return CUDA_ERROR_INVALID_DEVICE;
    const bool rank = attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    const bool array = attribute == CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED;
    const bool atomic = attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    *value = !rank && !array && Knobs().peer_access && (!atomic || Knobs().native_atomics) ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return WithDevice(device, [&](Device*) {
    *major = Knobs().arch / 10;
    *minor = Knobs().arch % 10;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return WithDevice(device, [&](Device* found) {
    *context = RetainPrimary(found)->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return WithDevice(device, ReleasePrimary); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return WithDevice(device, ResetPrimary); }

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned) {
  // The program has no influence here on how the host waits.
  return WithDevice(device, [](Device*) { return CUDA_SUCCESS; });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return WithDevice(device, [&](Device* found) {
    *active = PrimaryActive(found, flags) ? 1 : 0;
    return CUDA_SUCCESS;
  });
}
