// Gives work its places in the order of a host device.
#pragma once

#include <memory>
#include <span>

#include "src/device/host/stream.h"

namespace axccl::exec {

// Issues the next tickets of the orders and of the streams to `item`, all at once, and hands it to the queue.
// `devices`: those of the streams and of the ranks, each once, in the order of their addresses. Throws only before
// tickets are issued: one that is never completed would hold back its stream forever. An item with a mark that it is
// behind needs no thread: it goes on when the mark is reached.
void Submit(std::unique_ptr<device::host::Item> item, device::host::Queue* queue,
            std::span<device::host::Device* const> devices, std::span<const device::host::TimelinePtr* const> orders,
            std::span<device::host::Stream* const> streams);

// The same for work of a rank on `device` that joins one stream, of any device.
void SubmitTo(device::host::Stream* stream, std::unique_ptr<device::host::Item> item, device::host::Device* device,
              std::span<const device::host::TimelinePtr* const> orders);

}  // namespace axccl::exec
