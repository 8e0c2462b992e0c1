#!/bin/sh
# Fetch a server and the libraries that it needs from releases of Debian, install nothing,
# and print the folder that it is in. It needs apt and the mirror that apt has, but not root.
#
# usage: fetch-server.sh NAME PACKAGE RELEASE...
#   NAME     of the folder in .cache/servers
#   PACKAGE  which has the programs: redis-tools, valkey-tools, redict-tools
#   RELEASE  codenames, the first one preferred
set -eu
name=$1 package=$2
shift 2
cache=$(cd "$(dirname "$0")/.." && pwd)/.cache/servers
home=$cache/$name
kind=${package%-tools}

works() { [ -x "$home/bin/$kind-server" ] && "$home/bin/$kind-server" --version >/dev/null 2>&1; }
fail() { echo "$name: $*" >&2; exit 1; }

works && { echo "$home/bin"; exit; }
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "there is no apt"
. /etc/os-release
[ "$ID" = debian ] || fail "this is not Debian"

# apt's own configuration, with sources, lists and an idea of what is installed that are private.
state=$cache/apt/$(echo "$@" | tr ' ' +)
mkdir -p "$state/lists/partial" "$state/archives/partial" "$state/parts"
: >"$state/status"
private() {
	tool=$1
	shift
	"$tool" -q -o Dir::State::Lists="$state/lists" -o Dir::State::status="$state/status" \
		-o Dir::Cache="$state" -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none \
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}
mirrored() { private "$@" -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts="$state/parts"; }

mirror=$(private apt-get indextargets --no-release-info --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
	awk -v release="$VERSION_CODENAME" '$1 == release { print $2; exit }')
[ -n "$mirror" ] || fail "apt has no source of $VERSION_CODENAME"
for release; do
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main"
done >"$state/sources.list"

# libraries adds to the list of packages the libraries that they need, and those that these need.
libraries() {
	todo=$1 all=
	while [ -n "$todo" ]; do
		all="$all $todo"
		next=
		for found in $(mirrored apt-cache depends $todo |
			sed -n 's/^ *|*\(Pre\)\{0,1\}Depends: \(lib[^<>: ]*\)$/\2/p' | sort -u); do
			case " $all " in *" $found "*) ;; *) next="$next $found" ;; esac
		done
		todo=${next# }
	done
	echo "$all"
}

log=$state/$name.log
{
	mirrored apt-get update --error-on=any &&
		packages=$(libraries "$package") && [ "$packages" != " $package" ] &&
		rm -rf "$home" && mkdir -p "$home/packages" "$home/bin" &&
		(cd "$home/packages" && mirrored apt-get download -t "$1" $packages)
} >"$log" 2>&1 || fail "cannot be downloaded, says $log: $(tail -n 3 "$log")"
for file in "$home"/packages/*.deb; do
	dpkg-deb -x "$file" "$home"
done
rm -r "$home/packages"

# Programs of a newer release need its C library, which only its own loader can load.
loader=$(find "$home" -name 'ld-linux*' -type f | head -n 1)
[ -n "$loader" ] || fail "its libraries have no loader"
libraries=$(find "$home" -name 'lib*.so.*' -printf '%h\n' | sort -u | paste -sd :)
for program in "$home/usr/bin/$kind"-*; do
	run=$(basename "$program")
	[ "$run" != "$kind-check-rdb" ] || run=$kind-server # one program, told apart by its name
	cat >"$home/bin/$run" <<END
#!/bin/sh
exec "$loader" --argv0 $run --library-path "$libraries" "$program" "\$@"
END
	chmod +x "$home/bin/$run"
done
works || fail "does not run here: $("$home/bin/$kind-server" --version 2>&1 || true)"
echo "$home/bin"
