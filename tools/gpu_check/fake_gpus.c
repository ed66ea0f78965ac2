// Preloaded into a program of the shared CUDA runtime: shows it AXCCL_FAKE_GPUS devices, all of which are device 0. So
// nccl-tests, which take a device for each rank, run many ranks of one process on a machine with one GPU.
//
// Covered is what nccl-tests call with a device's number. The runtime is found by RTLD_NEXT, so this needs no header of
// it; its enums are passed as int.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { kInvalidDevice = 101 };

static __thread int current;

static int Count(void) {
  const char* text = getenv("AXCCL_FAKE_GPUS");
  const int count = text != NULL ? atoi(text) : 0;
  return count > 0 ? count : 1;
}

static void* Next(const char* name) {
  void* const function = dlsym(RTLD_NEXT, name);
  if (function == NULL) {
    fprintf(stderr, "fake_gpus: no %s: the program is not linked with a shared library of it\n", name);
    abort();
  }
  return function;
}

static int Exists(int device) { return device >= 0 && device < Count(); }

int cudaGetDeviceCount(int* count) {
  const int result = ((int (*)(int*))Next("cudaGetDeviceCount"))(count);
  if (result == 0) *count = Count();
  return result;
}

int cudaSetDevice(int device) {
  if (!Exists(device)) return kInvalidDevice;
  const int result = ((int (*)(int))Next("cudaSetDevice"))(0);
  if (result == 0) current = device;
  return result;
}

int cudaGetDevice(int* device) {
  const int result = ((int (*)(int*))Next("cudaGetDevice"))(device);
  if (result == 0) *device = current;
  return result;
}

int cudaGetDeviceProperties(void* properties, int device) {
  if (!Exists(device)) return kInvalidDevice;
  return ((int (*)(void*, int))Next("cudaGetDeviceProperties"))(properties, 0);
}

// The same, of programs that were built with CUDA 12.
int cudaGetDeviceProperties_v2(void* properties, int device) {
  if (!Exists(device)) return kInvalidDevice;
  return ((int (*)(void*, int))Next("cudaGetDeviceProperties_v2"))(properties, 0);
}

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (!Exists(device)) return kInvalidDevice;
  return ((int (*)(int*, int, int))Next("cudaDeviceGetAttribute"))(value, attribute, 0);
}

int cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (!Exists(device)) return kInvalidDevice;
  return ((int (*)(char*, int, int))Next("cudaDeviceGetPCIBusId"))(id, length, 0);
}

int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!Exists(device) || !Exists(peer)) return kInvalidDevice;
  *can = device != peer;
  return 0;
}

int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  (void)flags;
  return Exists(peer) && peer != current ? 0 : kInvalidDevice;
}

// The library asks the driver, which has device 0 only.
int ncclCommInitAll(void** comms, int count, const int* devices) {
  int* const zeros = calloc(count > 0 ? (size_t)count : 1, sizeof *zeros);
  if (zeros == NULL) abort();
  for (int i = 0; i < count; ++i) {
    if (!Exists(devices != NULL ? devices[i] : i)) {
      free(zeros);
      return 4;  // ncclInvalidArgument
    }
  }
  const int result = ((int (*)(void**, int, const int*))Next("ncclCommInitAll"))(comms, count, zeros);
  free(zeros);
  return result;
}
