// The functions of the CUDA driver that tests call, found by name: the tests build without a CUDA toolkit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axccl::harness {

// With the documented types of the driver's binary interface; 0 is success.
struct GpuDriver {
  int (*init)(unsigned flags);
  int (*count_devices)(int* count);
  int (*get_device)(int* device, int ordinal);
  int (*retain_context)(void** context, int device);
  int (*set_context)(void* context);
  int (*allocate)(uint64_t* memory, size_t bytes);
  int (*allocate_managed)(uint64_t* memory, size_t bytes, unsigned flags);
  int (*allocate_host)(void** memory, size_t bytes, unsigned flags);
  int (*free_memory)(uint64_t memory);
  int (*memory_info)(size_t* free, size_t* total);
  int (*create_stream)(void** stream, unsigned flags);
  int (*synchronize)(void* stream);
  int (*query_stream)(void* stream);
  int (*destroy_stream)(void* stream);
  int (*stream_wait_event)(void* stream, void* event, unsigned flags);
  int (*call_host)(void* stream, void (*function)(void*), void* argument);
  int (*copy_to_host)(void* to, uint64_t from, size_t bytes);
  int (*copy_to_device)(uint64_t to, const void* from, size_t bytes);
  int (*fill)(uint64_t memory, unsigned value, size_t words, void* stream);
  int (*create_event)(void** event, unsigned flags);
  int (*record_event)(void* event, void* stream);
  int (*query_event)(void* event);
  int (*destroy_event)(void* event);
  int (*begin_capture)(void* stream, int mode);
  int (*end_capture)(void* stream, void** graph);
  int (*instantiate)(void** executable, void* graph, unsigned long long flags);
  int (*launch_graph)(void* executable, void* stream);
  int (*destroy_graph)(void* graph);
  int (*destroy_executable)(void* executable);
  int (*load_module)(void** module, const void* image);  // text of PTX will do
  int (*get_function)(void** function, void* module, const char* name);
  int (*launch)(void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                unsigned threads_y, unsigned threads_z, unsigned shared_bytes, void* stream, void** parameters,
                void** extra);

  // Returns the started driver; null, with a GoogleTest failure, if there is none.
  static const GpuDriver* Get();
};

// Makes the primary context of a device current to the calling thread; where there are fewer, those that there are take
// turns. Null, with a GoogleTest failure, if that fails.
const GpuDriver* EnterGpu(int ordinal);
// Keeps the device that the thread has entered; device 0 if none.
const GpuDriver* EnterGpu();

}  // namespace axccl::harness
