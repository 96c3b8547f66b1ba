#!/usr/bin/env bash
# Unpacks a CMS from Debian's packages into a folder, without installing them: an installed package
# would bring Apache along and start it. Needs no root.
#
#   unpack.sh wordpress|mediawiki FOLDER
set -euo pipefail
cms=$1 target=$2
case $cms in
  wordpress)
    packages=(wordpress wordpress-theme-twentytwentythree php-getid3 libjs-prototype libjs-scriptaculous
      libjs-cropper libjs-underscore)
    ;;
  mediawiki) packages=(mediawiki mediawiki-classes) ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
download() { (cd "$work" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" "${packages[@]}"); }
if ! download; then
  [ "$(id -u)" = 0 ] || { echo "apt cannot download ${packages[*]}: run apt-get update as root"; exit 1; }
  apt-get update -qq
  download
fi
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/root"; done
# Absolute links lead to other packages, which are unpacked beside.
find "$work/root" -type l | while read -r link; do
  to=$(readlink "$link")
  case $to in /*) ln -sfn "$work/root$to" "$link" ;; esac
done
find "$work/root" -xtype l -delete # certificates and the like, which nothing here needs
rm -rf "$target" "$target.part"
mkdir -p "$(dirname "$target")"
rm -f "$work/root/usr/share/wordpress/.htaccess" "$work/root/usr/share/wordpress/wp-config.php"
cp -rL "$work/root/usr/share/$cms" "$target.part"
mv "$target.part" "$target"
