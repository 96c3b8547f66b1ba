package hostwatch

import (
	"bufio"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sockets maps the path of a descriptor in /proc to the inode of the descriptor's socket.
type sockets map[string]string

// areOpen reports whether all descriptors still link to their sockets.
func (w *Watch) areOpen(s sockets) bool {
	for descriptor, inode := range s {
		if target, err := fs.ReadLink(w.Proc, descriptor); err != nil ||
			target != "socket:["+inode+"]" {
			return false
		}
	}
	return true
}

// listener is a listening socket in /proc/net/tcp or tcp6.
type listener struct {
	inode, port string
	loopback    bool // other machines cannot reach the socket
}

// findSockets returns the sockets to watch, and the result of hasNamedPorts.
func (w *Watch) findSockets() (found sockets, isComplete bool, err error) {
	open, err := w.readOpenSockets()
	if err != nil {
		return nil, false, err
	}

	listening, err := w.readListeners()
	if err != nil {
		return nil, false, err
	}

	found = sockets{}
	byInode := map[string]listener{}
	listening = slices.DeleteFunc(listening, func(l listener) bool { return open[l.inode] == "" })
	for _, l := range w.chooseListeners(listening) {
		byInode[l.inode] = l
	}

	for inode, descriptor := range open {
		if _, chosen := byInode[inode]; chosen {
			found[descriptor] = inode
		}
	}

	return found, w.hasNamedPorts(listening), nil
}

// hasNamedPorts reports whether the host listens on each port in w.Ports. It returns false if
// w.Ports is empty.
func (w *Watch) hasNamedPorts(listening []listener) bool {
	for _, port := range w.Ports {
		if !slices.ContainsFunc(listening, func(l listener) bool { return l.port == port }) {
			return false
		}
	}
	return len(w.Ports) > 0
}

// chooseListeners returns the listeners on w.Ports. If no listener has such a port, it returns the
// listeners that other machines can reach. If other machines can reach no listener, it returns all
// listeners.
func (w *Watch) chooseListeners(all []listener) []listener {
	for _, wanted := range []func(listener) bool{
		func(l listener) bool { return slices.Contains(w.Ports, l.port) },
		func(l listener) bool { return !l.loopback },
	} {
		if some := slices.DeleteFunc(slices.Clone(all), func(l listener) bool { return !wanted(l) }); len(some) > 0 {
			return some
		}
	}

	return all
}

var socketLink = regexp.MustCompile(`^socket:\[([0-9]+)\]$`)

// readOpenSockets returns the host's open sockets: it maps each socket's inode to the path of the
// socket's descriptor.
func (w *Watch) readOpenSockets() (map[string]string, error) {
	dir := path.Join(strconv.Itoa(w.Host), "fd")
	entries, err := fs.ReadDir(w.Proc, dir)
	if err != nil {
		return nil, err
	}

	open := map[string]string{}
	for _, e := range entries {
		descriptor := path.Join(dir, e.Name())
		target, err := fs.ReadLink(w.Proc, descriptor)
		if errors.Is(err, fs.ErrPermission) {
			return nil, err
		}

		// An error means that the descriptor was closed meanwhile.
		if m := socketLink.FindStringSubmatch(target); err == nil && m != nil {
			open[m[1]] = descriptor
		}
	}

	return open, nil
}

// readListeners returns all TCP sockets that listen in the host's network namespace. On a machine
// without IPv6 the file tcp6 does not exist.
func (w *Watch) readListeners() (all []listener, err error) {
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := w.Proc.Open(path.Join(strconv.Itoa(w.Host), "net", name))
		if err != nil {
			if name == "tcp6" && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil, err
		}

		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if l, listens := parseLine(lines.Text()); listens {
				all = append(all, l)
			}
		}

		f.Close()
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}

	return all, nil
}

// stateListen is the state TCP_LISTEN in /proc/net/tcp.
const stateListen = "0A"

// parseLine reads a line of /proc/net/tcp or tcp6, and reports whether the line's socket listens.
// The table's header and a line are:
//
//	sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//	 0: 0100007F:98BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 973936 1 …
func parseLine(line string) (listener, bool) {
	if !strings.Contains(line, " "+stateListen+" ") {
		return listener{}, false // most lines describe connections
	}

	f := strings.Fields(line)
	if len(f) < 10 || f[3] != stateListen {
		return listener{}, false
	}

	address, hex, _ := strings.Cut(f[1], ":")
	port, err := strconv.ParseUint(hex, 16, 16)
	if err != nil {
		return listener{}, false
	}

	return listener{inode: f[9], port: strconv.FormatUint(port, 10), loopback: isLoopback(address)},
		true
}

// isLoopback reports whether an address belongs to the loopback interface. The address is
// hexadecimal, as in /proc/net/tcp. The kernel prints words of four bytes in the machine's byte
// order. The constants below are in the little-endian order, because Azure Functions runs only on
// little-endian machines.
func isLoopback(address string) bool {
	const mapped, one = "0000000000000000FFFF0000", "00000000000000000000000001000000"
	return address == one || strings.HasSuffix(address, "7F") &&
		(len(address) == 8 || strings.HasPrefix(address, mapped))
}

// portPattern finds the ports in addresses such as http://+:80;http://127.0.0.1:7071.
var portPattern = regexp.MustCompile(`:([0-9]{1,5})(?:[/;]|$)`)

// urlVariables are the environment variables from which an ASP.NET Core host reads the URLs to
// listen on. portVariables are those from which the host reads only ports.
var (
	urlVariables  = []string{"ASPNETCORE_URLS", "DOTNET_URLS", "URLS"}
	portVariables = []string{"ASPNETCORE_HTTP_PORTS", "ASPNETCORE_HTTPS_PORTS"}
)

// Ports returns the ports that a host's environment and command line name, as decimal numbers. The
// function env returns the value of a variable of the host's environment.
func Ports(proc fs.FS, host int, env func(string) string) (ports []string) {
	var urls []string
	for _, name := range urlVariables {
		urls = append(urls, env(name))
	}

	args, err := fs.ReadFile(proc, path.Join(strconv.Itoa(host), "cmdline"))
	if err == nil {
		urls = append(urls, urlsOf(strings.Split(string(args), "\x00"))...)
	}

	for _, u := range urls {
		for _, m := range portPattern.FindAllStringSubmatch(u, -1) {
			ports = append(ports, m[1])
		}
	}

	for _, name := range portVariables {
		ports = append(ports, strings.FieldsFunc(env(name), func(r rune) bool { return r == ';' || r == ',' })...)
	}

	return ports
}

// urlsOf returns the values of the option --urls in the arguments of a command.
func urlsOf(args []string) (urls []string) {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--urls="); ok {
			urls = append(urls, value)
		} else if arg == "--urls" && i+1 < len(args) {
			urls = append(urls, args[i+1])
		}
	}

	return urls
}
