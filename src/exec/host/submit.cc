#include "src/exec/host/submit.h"

#include <array>
#include <utility>

#include "src/device/host/current.h"

namespace axccl::exec {
namespace {

using device::host::Device;
using device::host::Stream;
using device::host::TimelinePtr;

class Submission {
 public:
  explicit Submission(std::span<Device* const> devices) : devices_(devices) {
    for (Device* const device : devices_) device->submission().lock();
  }
  ~Submission() {
    for (Device* const device : devices_) device->submission().unlock();
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

 private:
  const std::span<Device* const> devices_;
};

}  // namespace

void Submit(std::unique_ptr<device::host::Item> item, device::host::Queue* queue, std::span<Device* const> devices,
            std::span<const TimelinePtr* const> orders, std::span<Stream* const> streams) {
  item->places.reserve(orders.size() + streams.size());
  {
    const Submission submission(devices);
    for (Stream* const stream : streams) {
      Device* const device = Device::Get(stream->device());
      device->AddLegacyMarks(stream, &item->after);
      if (stream == device->null_stream()) device::host::AddOtherNullMarks(device, &item->after);
    }
    for (const TimelinePtr* const order : orders) item->places.push_back({*order, (*order)->Issue()});
    for (Stream* const stream : streams) item->places.push_back({stream->timeline(), stream->timeline()->Issue()});
  }
  const bool is_parked = item->behind.timeline != nullptr;
  queue->Push(std::move(item));
  if (!is_parked && queue->pending()) device::host::Scheduler::Process().LeftPending();
}

void SubmitTo(Stream* stream, std::unique_ptr<device::host::Item> item, Device* device,
              std::span<const TimelinePtr* const> orders) {
  std::array<Device*, 2> devices{device, Device::Get(stream->device())};
  if (devices[1] < devices[0]) std::swap(devices[0], devices[1]);
  const std::array<Stream*, 1> streams{stream};
  Submit(std::move(item), device->queue(), {devices.data(), devices[0] == devices[1] ? size_t{1} : size_t{2}}, orders,
         streams);
}

}  // namespace axccl::exec
