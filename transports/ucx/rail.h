// One way to other machines: a network device, or all of them together, with a context and a worker of UCX's.
//
// UCX (1.13) sends active messages over one TCP interface only, however many it is given; several rails, each of a
// network of its own, carry data side by side. Adapters (InfiniBand, RoCE) it uses together itself, so they are one
// rail. Whoever calls holds the lock of worker.h. Lives as long as the process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/library.h"

namespace axccl::ucx {

class Worker;

class Rail {
 public:
  // `families`: as SelfOptions has them.
  static Result<std::unique_ptr<Rail>> Create(Worker* owner, const Library& ucx, const RailOptions& options,
                                              const std::string& families);

  Worker* owner() const { return owner_; }
  const RailOptions& options() const { return options_; }
  std::string name() const { return options_.devices.empty() ? "all devices" : options_.devices; }
  // What others need to send to it.
  const std::vector<std::byte>& address() const { return address_; }
  ucp_worker_h handle() const { return worker_; }
  // UCX's descriptor, readable when there is anything to do since it was armed.
  int event_fd() const { return event_fd_; }
  // Data of one message at most, but for a stretch that must not be divided.
  size_t most_bytes() const;
  // Whether its peers are greeted before they are sent messages (endpoint.h).
  bool greets() const;

  // Calls `handler` with this rail as its argument for every active message of that id.
  Status Receive(unsigned id, ucp_am_recv_callback_t handler);
  // Whether anything was done.
  bool Progress() { return ucx_.ucp_worker_progress(worker_) != 0; }
  // False where there is something to do before.
  bool Arm() { return ucx_.ucp_worker_arm(worker_) != UCS_ERR_BUSY; }

 private:
  Rail(Worker* owner, const Library& ucx, const RailOptions& options) : owner_(owner), ucx_(ucx), options_(options) {}
  Status Start(const std::string& families);
  Status Configure(const std::string& families, ucp_config_t* config) const;
  Status CreateWorker();

  Worker* const owner_;
  const Library& ucx_;
  const RailOptions options_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::byte> address_;
  int event_fd_ = -1;
};

}  // namespace axccl::ucx
