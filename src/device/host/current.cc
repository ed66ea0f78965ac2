#include "src/device/host/current.h"

#include <algorithm>
#include <utility>

#include "src/base/per_thread.h"

namespace axccl::device::host {
namespace internal {

thread_local const Device* t_only_null = nullptr;

}  // namespace internal

namespace {

using internal::t_only_null;

thread_local int t_device = -1;
thread_local bool t_chosen = false;

// How a thread that chose no device uses devices.
struct Uses {
  DeviceHold claim;
  std::vector<Device*> null;  // the devices on whose NULL streams it has called ranks or enqueued work
  Mark own;                   // its last work there that is not a call of a rank
};
const std::vector<Device*>& Used() {
  static const auto* const none = new std::vector<Device*>;
  const Uses* const uses = PerThread<Uses>::Find();
  return uses != nullptr ? uses->null : *none;
}

void NoteUse(Device* device) {
  std::vector<Device*>& null = PerThread<Uses>::Get().null;
  if (std::find(null.begin(), null.end(), device) == null.end()) null.push_back(device);
  t_only_null = null.size() == 1 ? device : nullptr;
}

// Calls fn(mark) for each mark that a call of a rank on the NULL stream of `device` waits for, until it returns false.
template <class Fn>
void ForOtherNullMarks(const Device* device, Fn fn) {
  const Uses* const uses = PerThread<Uses>::Find();
  if (uses == nullptr) return;
  for (const Device* used : uses->null) {
    if (!NullStreamsJoined(used, device)) continue;
    const TimelinePtr& timeline = used->null_stream()->timeline();
    if (!timeline->Idle() && !fn(Mark{timeline, timeline->issued()})) return;
  }
  const Mark& own = uses->own;
  if (!own.Reached() && own.timeline != device->null_stream()->timeline()) fn(own);
}

}  // namespace

int CurrentDevice() {
  if (t_device >= 0) return t_device;
  return Used().empty() ? 0 : Used().front()->ordinal();
}

Result<int> ClaimDevice() {
  if (t_device >= 0) return t_device;
  Uses& uses = PerThread<Uses>::Get();
  AXCCL_ASSIGN_OR_RETURN(uses.claim, Device::Claim());
  t_device = uses.claim->ordinal();
  return t_device;
}

bool ChoseDevice() { return t_chosen; }

void ForgetDevices() {
  t_device = -1;
  t_chosen = false;
  t_only_null = nullptr;
  if (Uses* const uses = PerThread<Uses>::Find(); uses != nullptr) *uses = Uses();
}

void ChooseDevice(int ordinal) {
  ForgetDevices();
  t_device = ordinal;
  t_chosen = true;
}

std::vector<Device*> NullDevices() {
  Device* const current = Device::Get(CurrentDevice());
  std::vector<Device*> devices{current};
  if (t_chosen) return devices;
  const bool any = t_device >= 0 || !Used().empty();
  for (Device* device : any ? Used() : Device::All()) {
    if (device != current) devices.push_back(device);
  }
  return devices;
}

Device* OnlyNullDevice() {
  if (t_chosen) return Device::Get(t_device);
  if (Used().empty()) return t_device >= 0 ? Device::Get(t_device) : nullptr;
  Device* const first = Used().front();
  return Used().size() == 1 && (t_device < 0 || t_device == first->ordinal()) ? first : nullptr;
}

bool NullStreamsJoined(const Device* a, const Device* b) { return !t_chosen && a != b && a->claimed() && b->claimed(); }

namespace internal {

bool OtherNullStreamsHold(Device* device) {
  if (t_chosen) {
    t_only_null = device;
    return false;
  }
  NoteUse(device);
  bool hold = false;
  ForOtherNullMarks(device, [&](const Mark&) {
    hold = true;
    return false;
  });
  return hold;
}

}  // namespace internal

void AddOtherNullMarks(Device* device, std::vector<Mark>* marks) {
  if (t_chosen) return;
  NoteUse(device);
  ForOtherNullMarks(device, [marks](Mark mark) {
    marks->push_back(std::move(mark));
    return true;
  });
}

void SubmitToNull(std::shared_ptr<Work> work, Mark mark) {
  Device* const home = Device::Get(CurrentDevice());
  if (t_chosen) return Submit(home, home->null_stream(), std::move(work), {std::move(mark)});
  NoteUse(home);
  std::vector<Mark> after{std::move(mark)};
  for (const Device* used : Used()) {
    if (used != home) after.push_back(Mark{used->null_stream()->timeline(), used->null_stream()->timeline()->issued()});
  }
  Submit(home, home->null_stream(), std::move(work), std::move(after));
  PerThread<Uses>::Get().own = Mark{home->null_stream()->timeline(), home->null_stream()->timeline()->issued()};
}

void WaitOnNull(Mark mark) {
  if (mark.timeline == nullptr) return;
  Device* const home = Device::Get(CurrentDevice());
  if (t_chosen || mark.Reached()) return WaitFor(home, home->null_stream(), std::move(mark));
  SubmitToNull(MakeNothing(), std::move(mark));
}

Mark RecordNullMark() {
  const std::vector<Device*> devices = NullDevices();
  std::vector<Mark> marks;
  for (Device* device : devices) {
    marks.push_back(RecordMark(device, device->null_stream()));
    if (marks.back().Reached()) marks.pop_back();
  }
  if (marks.empty()) return Mark();
  return marks.size() == 1 ? marks[0] : Join(devices[0], std::move(marks));
}

}  // namespace axccl::device::host
