// The endpoints of this process to others, and the rails that they go over.
//
// An endpoint stays until one of the two processes ends, because closing it would cut off communicators that are being
// made meanwhile. An endpoint that has failed is closed later (CloseFailed), and the next connection makes a new one.
//
// The caller must hold the lock of worker.h, and UCX must not have been shut down. Lives as long as the process.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/endpoint.h"
#include "transports/ucx/library.h"
#include "transports/ucx/rail.h"

namespace axccl::ucx {

class Endpoints {
 public:
  using ProcessId = Endpoint::ProcessId;
  // A rail here, and the address of one of the peer's.
  struct Way {
    Rail* rail;
    const remote::RailAddress* address;
  };

  // `self` is this process. UCX calls `on_error` with the Endpoint as argument when one fails, which must then be
  // abandoned. `epolls`: UCX's own, as in descriptors.h.
  Endpoints(const Library& ucx, const ProcessId& self, ucp_err_handler_cb_t on_error, std::vector<int> epolls)
      : ucx_(ucx), self_(self), on_error_(on_error), epolls_(std::move(epolls)) {}

  // The endpoint to a process, if there is one; else null.
  std::shared_ptr<Endpoint> Find(const ProcessId& process) const;
  // Makes one over those pairs of rails. It is not greeted yet.
  Result<std::shared_ptr<Endpoint>> Make(const ProcessId& process, std::span<const Way> ways);
  // The rails that endpoints go over.
  const std::vector<Rail*>& rails() const { return rails_; }

  // Whether an endpoint still has to send or receive greetings.
  bool greeting() const { return !greeting_.empty(); }
  // Sends the greetings that can be sent now.
  void Greet();
  // The greeting of a process has arrived on that rail. It gets one when it is reached, if it is not known yet.
  void Hear(const ProcessId& process, const Rail* rail, bool asks);

  // Gives an endpoint up: its users lose their peers. Returns false if that has been done before.
  bool Abandon(Endpoint* endpoint, const std::string& why);
  // Closes those that have been given up. Must not be called from the endpoints' own error handlers.
  void CloseFailed();

  // Lets UCX do what there is to do. Returns whether there was anything.
  bool Progress() {
    bool any = false;
    for (Rail* rail : rails_) any |= rail->Progress();
    return any;
  }
  // Greets and closes, where that is due.
  void Tend() {
    if (greeting()) Greet();
    if (!failed_.empty()) CloseFailed();
  }
  // Lets UCX do all there is to do, and greets, until the descriptor of every rail shows whether there is more.
  void Arm();

 private:
  Status AddLane(Endpoint* endpoint, const Way& way);
  std::vector<sockaddr_storage> SoundHosts() const;

  const Library& ucx_;
  const ProcessId self_;
  const ucp_err_handler_cb_t on_error_;
  const std::vector<int> epolls_;
  std::map<ProcessId, std::shared_ptr<Endpoint>> endpoints_;
  std::vector<std::shared_ptr<Endpoint>> greeting_;
  std::vector<Rail*> rails_;
  std::vector<ucp_ep_h> failed_;  // still to be closed
};

}  // namespace axccl::ucx
