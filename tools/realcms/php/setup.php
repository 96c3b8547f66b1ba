<?php
// Installs WordPress, and prints an application password of a user with the role Editor, which the recipes ask for.
// Arguments: name and password of that user.
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = '127.0.0.1';
$_SERVER['REQUEST_URI'] = '/';
$_SERVER['SERVER_PROTOCOL'] = 'HTTP/1.1';
function wp_new_blog_notification() {} // WordPress would send a mail
require __DIR__ . '/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('The Harbour Post', 'admin', 'admin@example.invalid', false, '', wp_generate_password(30));
$editor = wp_insert_user(['user_login' => $argv[1], 'user_pass' => $argv[2], 'role' => 'editor',
                          'user_email' => 'editor@example.invalid']);
foreach (get_posts(['post_type' => ['post', 'page'], 'post_status' => 'any', 'numberposts' => -1]) as $post) {
    wp_delete_post($post->ID, true);
}
update_option('permalink_structure', '/%postname%/');
update_option('show_avatars', 0); // they would come from another host
update_option('posts_per_page', 100);
update_option('blogdescription', 'News of the harbour');
if (wp_get_theme('twentytwentythree')->exists()) {
    switch_theme('twentytwentythree');
}
flush_rewrite_rules(false);
list($password) = WP_Application_Passwords::create_new_application_password(
    $editor, ['name' => 'weir']);
echo "application-password:$password\n";
