// One way to other machines: a network device, or all of them together, with a context and a worker of UCX.
//
// UCX (1.13) sends active messages over one TCP interface only, however many it gets; several rails, each on a network
// of its own, carry data in parallel. UCX itself combines adapters (InfiniBand, RoCE), so they form one rail. The
// caller must hold the lock of worker.h. Lives as long as the process.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/pci_distance.h"
#include "src/base/status.h"
#include "transports/transport.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/library.h"

namespace axccl::ucx {

class Worker;

class Rail {
 public:
  // `families`: as in remote::SelfOptions.
  static Result<std::unique_ptr<Rail>> Create(Worker* owner, const Library& ucx, const remote::RailOptions& options,
                                              const std::string& families);

  Worker* owner() const { return owner_; }
  const remote::RailOptions& options() const { return options_; }
  std::string name() const { return options_.devices.empty() ? "all devices" : options_.devices; }
  // What others need to send to it.
  const std::vector<std::byte>& address() const { return address_; }
  ucp_worker_h handle() const { return worker_; }
  // UCX's descriptor, readable when there has been anything to do since it was armed.
  int event_fd() const { return event_fd_; }
  // Limit on the data of one message, unless a stretch must not be divided.
  size_t most_bytes() const;
  // Whether its peers are greeted before messages are sent to them (endpoint.h).
  bool greets() const;
  // Whether adapters read and write memory of CUDA devices by it, as far as UCX says.
  bool reaches_devices() const;
  // Of its farthest adapter from a device on PCI.
  PciDistance DistanceTo(const std::string& pci_address);
  // Makes a call of UCX with data in memory of a CUDA device, which it is told if it knows of that.
  ucs_status_ptr_t CallFor(const transport::Reach::DevicePart& device, ucp_request_param_t* param,
                           const std::function<ucs_status_ptr_t()>& call) const;

  // Whether UCX and the adapters take memory of a CUDA device: registers it, and UCX keeps that for later calls.
  Status Register(const transport::Reach::DevicePart& device, std::byte* memory, uint64_t bytes) const;

  // Calls `handler` with this rail as its argument for every active message of that id.
  Status Receive(unsigned id, ucp_am_recv_callback_t handler);
  // Returns whether anything was done.
  bool Progress() { return ucx_.ucp_worker_progress(worker_) != 0; }
  // Returns false if there is something to do first.
  bool Arm() { return ucx_.ucp_worker_arm(worker_) != UCS_ERR_BUSY; }

 private:
  Rail(Worker* owner, const Library& ucx, const remote::RailOptions& options)
      : owner_(owner), ucx_(ucx), options_(options) {}
  Status Start(const std::string& families);
  Status Configure(const std::string& families, ucp_config_t* config) const;
  Status CreateWorker();
  bool KnowsDevices() const;

  Worker* const owner_;
  const Library& ucx_;
  const remote::RailOptions options_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::byte> address_;
  int event_fd_ = -1;
  bool knows_devices_ = false;
  std::map<std::string, PciDistance> distances_;  // that have been asked for
};

}  // namespace axccl::ucx
