// The host devices that a call of this thread refers to.
//
// A thread that has called axcclHostSetDevice chose a device, and its NULL stream is that device's. On a CPU few
// programs do this. There, a communicator's rank gets a device that nothing else uses, claimed for the thread that
// makes it, and any thread of the program may call the rank (for example, one of a pool). For a thread that chose no
// device, therefore, the NULL streams of all ranks that it has called with NULL count as one stream: whatever it does
// with NULL (wait, query, record, host functions, copies) applies to all of them, and its own work on them runs in the
// order of its calls. Calls on ranks of ncclCommInitAll, whose devices differ on purpose, do not wait for each other.
//
// A device is in use, and is not claimed for another thread, while a communicator or a stream is on it, or the thread
// that it was claimed for lives.
#pragma once

#include <vector>

#include "src/device/host/stream.h"

namespace axccl::device::host {

namespace internal {
// The only device whose NULL stream this thread uses; null while that is not known.
extern thread_local const Device* t_only_null;
bool OtherNullStreamsHold(Device* device);
}  // namespace internal

// The device that the calling thread chose, that was claimed for it, or whose NULL stream it used first; else 0.
int CurrentDevice();
// The same, but claims a device if the thread has none.
Result<int> ClaimDevice();
// Whether the thread chose a device itself.
bool ChoseDevice();
void ChooseDevice(int ordinal);
// The thread is as if it had used no device so far.
void ForgetDevices();

// The devices whose NULL streams the thread's NULL refers to, its current one first; all existing ones if it has no
// device and used none.
std::vector<Device*> NullDevices();
// The only one of these; null if there are several.
Device* OnlyNullDevice();
// Called when the thread calls a rank of `device` on `stream`. Records it if that is the NULL stream, and returns
// whether the call must then wait for other devices' NULL streams.
inline bool OtherNullStreamsHold(Device* device, const Stream* stream) {
  return stream == device->null_stream() && device != internal::t_only_null && internal::OtherNullStreamsHold(device);
}
// Adds what such a call waits for.
void AddOtherNullMarks(Device* device, std::vector<Mark>* marks);
// Whether calls of one group on the NULL streams of two devices are ordered; they must then be launched as one.
bool NullStreamsJoined(const Device* a, const Device* b);

// Enqueues work on the streams that the thread's NULL refers to.
void SubmitToNull(std::shared_ptr<Work> work, Mark mark = Mark());
// Makes the streams that the thread's NULL refers to wait for `mark`.
void WaitOnNull(Mark mark);
// RecordMark of the streams that the thread's NULL refers to.
Mark RecordNullMark();

}  // namespace axccl::device::host
