// Counts the calls of the driver, for tests (SOFTGPU_COUNT_CALLS): those of a thread, through pointers that
// cuGetProcAddress has returned. Calls of the driver by itself do not count.
#pragma once

namespace softgpu::cuda {

// Of an entry point, one that also counts; null if it has none.
void* CountingForm(void* function);

}  // namespace softgpu::cuda
