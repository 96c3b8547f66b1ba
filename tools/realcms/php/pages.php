<?php
// The pages need nothing from other hosts, and the list of posts shows slugs.
remove_action('wp_head', 'print_emoji_detection_script', 7);
remove_action('admin_print_scripts', 'print_emoji_detection_script');
remove_action('wp_head', 'wp_resource_hints', 2);
add_filter('manage_posts_columns', function () {
    return ['cb' => '<input type="checkbox">', 'title' => 'Title', 'slug' => 'Slug'];
});
add_action('manage_posts_custom_column', function ($column, $id) {
    if ($column === 'slug') {
        echo esc_html(get_post_field('post_name', $id));
    }
}, 10, 2);
add_filter('edit_posts_per_page', fn () => 100);
