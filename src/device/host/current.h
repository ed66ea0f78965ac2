// Which host devices the calling thread means.
//
// A thread that has called axcclHostSetDevice chose one, and its NULL stream is that device's. On a CPU few programs
// do: there a communicator's rank gets a device that nothing else uses, claimed for the thread that makes it, and any
// thread of the program may call it, a pool's say. For a thread that chose none, therefore, the NULL streams of the
// ranks it has called with NULL are one: what it does with NULL (wait, query, record, host functions, copies) is about
// all of them, and its own work on them runs in the order of its calls. Calls on ranks of ncclCommInitAll, whose
// devices are different on purpose, do not wait for each other.
//
// A device is in use, and not claimed for another thread, while a communicator or a stream is on it, or the thread it
// was claimed for lives.
#pragma once

#include <vector>

#include "src/device/host/stream.h"

namespace axccl::device::host {

namespace internal {
// The one device whose NULL stream this thread has to think of; null while that is not known.
extern thread_local const Device* t_only_null;
bool OtherNullStreamsHold(Device* device);
}  // namespace internal

// The device that the calling thread chose, or that was claimed for it, or whose NULL stream it used first; else 0.
int CurrentDevice();
// Likewise, but claims one where the thread has none.
Result<int> ClaimDevice();
// Whether the thread has a device of its own choice.
bool ChoseDevice();
void ChooseDevice(int ordinal);

// The devices whose NULL streams the thread means by NULL, its current one first; all there are if it has none and used
// none.
std::vector<Device*> NullDevices();
// The only one of them; null if there are several.
Device* OnlyNullDevice();
// Notes that the thread calls a rank on the NULL stream of `device`. Whether the call has to wait for others' NULL
// streams.
inline bool OtherNullStreamsHold(Device* device) {
  return device != internal::t_only_null && internal::OtherNullStreamsHold(device);
}
// What that call waits for.
void AddOtherNullMarks(Device* device, std::vector<Mark>* marks);
// Whether calls of one group on the NULL streams of two devices are ordered: they must be launched as one.
bool NullStreamsJoined(const Device* a, const Device* b);

// Enqueues work on what the thread means by NULL.
void SubmitToNull(std::shared_ptr<Work> work, Mark mark = Mark());
// Makes what the thread means by NULL wait for `mark`.
void WaitOnNull(Mark mark);
// RecordMark of what the thread means by NULL.
Mark RecordNullMark();

}  // namespace axccl::device::host
