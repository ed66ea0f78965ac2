// The sockets of lines: how they listen, and how they notice that nobody answers.
#pragma once

#include <chrono>
#include <string>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "transports/remote/address.h"

namespace axccl::remote {

// What is known of a process whose lines have ended, but not how.
inline constexpr const char* kProcessEnded = "its process has ended, or has given this one up";
// What has not been acknowledged for so long will not be.
inline constexpr std::chrono::milliseconds kLinePatience{2200};

// Listens at that address, at any port, which `local` gets.
Result<service::Fd> ListenAt(sockaddr_storage* local);
// Connects to that address, without waiting.
Result<service::Fd> BeginConnect(const sockaddr_storage& address);
// Of a lifeline. Retransmits a lost byte every 200 ms, not after growing delays. That is often enough within
// kLinePatience that a network which loses every tenth packet does not count as broken.
void Tune(int fd);
// While nothing is sent, because an answer is missing, the kernel probes whether the machine is there.
void AskWhileIdle(int fd);
// Of a data line: unanswered data are the lifeline's business.
void TuneForData(int fd);
bool HasEnded(int fd);
// Why a connection over that rail has failed; 0: it was closed.
std::string Reason(int error, const std::string& rail);

}  // namespace axccl::remote
