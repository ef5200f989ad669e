/* Preloaded into linux.uml on machines whose CPU has more register state than that kernel knows (AMX).
 *
 * User-Mode Linux 6.1 sets a guest's vector registers with a buffer of the size it was built for, which the host's kernel
 * refuses (EFAULT) unless it is as large as the whole state. This hands over the whole, whose rest is in its initial state.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define XSTATE 0x202

long ptrace(enum __ptrace_request request, ...)
{
	static long (*real)(enum __ptrace_request, ...);
	va_list rest;
	va_start(rest, request);
	int pid = va_arg(rest, int);
	void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
	va_end(rest);
	if (!real)
		real = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
	long result = real(request, pid, address, data);
	if (result == 0 || errno != EFAULT || request != PTRACE_SETREGSET || address != (void *)XSTATE)
		return result;

	static __thread char whole[32768];
	struct iovec *given = data, all = {whole, sizeof whole};
	if (given->iov_len > sizeof whole || real(PTRACE_GETREGSET, pid, address, &all))
		return -1;
	memset(whole, 0, sizeof whole);
	memcpy(whole, given->iov_base, given->iov_len);
	return real(PTRACE_SETREGSET, pid, address, &all);
}
